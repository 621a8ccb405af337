// A 1 x 1 convolution is a product of pixels by the weight, in tiles of up to 24 vectors. Sums stay in registers from the first product to
// the activation.
#include <ATen/native/CPUBlas.h>

#include <algorithm>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/activations.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {

#if defined(__x86_64__)
namespace {

constexpr int64_t kWidth = kImageWidth;
constexpr int64_t kMaxColumns = 4 * kWidth; // output channels of a part of the weight
constexpr int64_t kMaxRows = 512; // pixels that a part goes over,
constexpr int64_t kCachedBytes = 512 << 10; // and their size: the next part finds them in the second-level cache

// Parts of [0, extent), equal but for the last one.
struct Parts {
  int64_t extent, length;

  Parts(int64_t extent, int64_t longest, int64_t unit) : extent(extent) {
    const int64_t count = (extent + longest - 1) / longest;
    length = ((extent + count - 1) / count + unit - 1) / unit * unit;
  }
  int64_t count() const {
    return (extent + length - 1) / length;
  }
  int64_t length_of(int64_t i) const {
    return std::min(length, extent - i * length);
  }
};

// What is multiplied at a time: a number of float32, or a pair of bfloat16.
template <typename T>
constexpr int64_t kChannelsAtOnce = 4 / sizeof(T);

// Processors without instructions for bfloat16 run the functions of float32, which have none of them.
#define XLA_FOR_PRODUCTS __attribute__((target("arch=x86-64-v4,avx512bf16")))

XLA_INLINE XLA_FOR_AVX512 void add_product(__m512& sum, const float* pixel, __m512i weight) {
  sum = _mm512_fmadd_ps(_mm512_set1_ps(*pixel), _mm512_castsi512_ps(weight), sum);
}

XLA_INLINE XLA_FOR_PRODUCTS void add_product(__m512& sum, const c10::BFloat16* pixel, __m512i weight) {
  float pair; // as a number, which is read into all places
  std::memcpy(&pair, pixel, sizeof(pair));
  sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(weight), reinterpret_cast<__m512bh>(_mm512_set1_ps(pair)));
}

XLA_INLINE XLA_FOR_PRODUCTS void store_rounded(__mmask16 which, float* to, __m512 v) {
  store(which, to, v);
}

XLA_INLINE XLA_FOR_PRODUCTS void store_rounded(__mmask16 which, c10::BFloat16* to, __m512 v) {
  _mm256_mask_storeu_epi16(to, which, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

// Of a weight: output channels from `column` on. Tiles prefetch what follows, [ahead, end).
struct Part {
  int64_t column, columns;
  const int32_t* weight;
  const int32_t* ahead;
  const int32_t* end;

  // Where the next tile prefetches; without more to do where it reads.
  const int32_t* take_ahead(int64_t channels) {
    const int32_t* from = ahead < end ? ahead : weight;
    ahead += channels * kWidth;
    return from;
  }
};

// kRows pixels from `row` on, by a part in kVectors vectors.
template <int kRows, int kVectors, typename T>
XLA_INLINE XLA_FOR_PRODUCTS void convolve_tile(const ImageConvolution& c, int64_t row, Part& part) {
  const int64_t column = part.column, columns = part.columns;
  const T* in = static_cast<const T*>(c.input) + row * c.channels;
  const int32_t* weight = part.weight;
  const int32_t* ahead = part.take_ahead(c.channels / kChannelsAtOnce<T>);
  const __mmask16 last = mask_of(columns - (kVectors - 1) * kWidth);
  __m512 sums[kRows][kVectors] = {};
  for (int64_t k = 0; k < c.channels; k += kChannelsAtOnce<T>, weight += columns, ahead += kWidth) {
    __builtin_prefetch(ahead, 0, 2);
    __m512i factors[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      factors[j] = _mm512_maskz_loadu_epi32(j == kVectors - 1 ? last : static_cast<__mmask16>(-1), weight + j * kWidth);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        add_product(sums[i][j], in + i * c.channels + k, factors[j]);
      }
    }
  }
  const int64_t place = row * c.out_channels + column;
  const T* added = c.added ? static_cast<const T*>(c.added) + place : nullptr;
  T* out = static_cast<T*>(c.out) + place;
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) {
    const __mmask16 which = j == kVectors - 1 ? last : static_cast<__mmask16>(-1);
    const __m512 bias = c.bias ? load(which, c.bias + column + j * kWidth) : _mm512_setzero_ps();
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const int64_t at = i * c.out_channels + j * kWidth;
      const __m512 sum = sums[i][j] + bias;
      store_rounded(which, out + at, activate(added ? sum + load(which, added + at) : sum, c.activation));
    }
  }
}

// Pixels of [begin, end), kRows at a time, the last ones in fewer.
template <int kRows, int kVectors, typename T>
XLA_FOR_PRODUCTS void convolve_part(const ImageConvolution& c, int64_t begin, int64_t end, Part& part) {
  for (; begin + kRows <= end; begin += kRows) {
    convolve_tile<kRows, kVectors, T>(c, begin, part);
  }
  if constexpr (kRows > 1) {
    convolve_part<kRows / 2, kVectors, T>(c, begin, end, part);
  }
}

template <typename T>
void share_pixels(const ImageConvolution& c) {
  const Parts rows(c.out_pixels(), std::clamp<int64_t>(kCachedBytes / (c.channels * static_cast<int64_t>(sizeof(T))), 128, kMaxRows), 1);
  const Parts columns(c.out_channels, kMaxColumns, kWidth);
  const auto* weight = static_cast<const int32_t*>(c.weight);
  const int64_t depth = c.channels / kChannelsAtOnce<T>;
  const int64_t work = c.out_pixels() * c.channels * c.out_channels / kProductsPerThread;
  share_out(rows.count() * columns.count(), 1, work, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t r = i / columns.count(), j = i % columns.count();
      const int64_t begin = r * rows.length, end = begin + rows.length_of(r);
      const int32_t* from = weight + j * columns.length * depth;
      const int32_t* next = from + columns.length_of(j) * depth;
      const int64_t ahead = j + 1 < columns.count() ? columns.length_of(j + 1) * depth : 0;
      Part part{j * columns.length, columns.length_of(j), from, next, next + ahead};
      const int64_t vectors = (part.columns + kWidth - 1) / kWidth;
      vectors == 4       ? convolve_part<6, 4, T>(c, begin, end, part)
          : vectors == 3 ? convolve_part<8, 3, T>(c, begin, end, part)
          : vectors == 2 ? convolve_part<12, 2, T>(c, begin, end, part)
                         : convolve_part<12, 1, T>(c, begin, end, part);
    }
  });
}

} // namespace

bool can_convolve_pixels(DType dtype) {
  static const bool multiplies_pairs = __builtin_cpu_supports("avx512bf16") && !at::native::cpublas::could_pack(at::kBFloat16);
  return has_avx512() && (dtype == DType::F32 || multiplies_pairs);
}

int64_t pixel_weight_columns(int64_t out_channels) {
  return Parts(out_channels, kMaxColumns, kWidth).length;
}

void convolve_pixels(const ImageConvolution& c) {
  c.dtype == DType::F32 ? share_pixels<float>(c) : share_pixels<c10::BFloat16>(c);
}

#else

bool can_convolve_pixels(DType /*dtype*/) {
  return false;
}

int64_t pixel_weight_columns(int64_t out_channels) {
  return out_channels;
}

void convolve_pixels(const ImageConvolution& /*convolution*/) {
  XLA_ASSERT(false, "no code for this processor");
}

#endif

} // namespace torch_xla::cpu
