// Sums stay in registers from the first product to the activation. A 1 x 1 convolution is a product of pixels by the weight, in tiles of up
// to 24 vectors. A convolution by channel has vectors of channels, and a few pixels at a time that share the weight's vectors.
#include "engine/cpu/few_rows/direct_convolutions.h"

#include <ATen/native/CPUBlas.h>

#include <algorithm>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/vectors.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {

#if defined(__x86_64__)
namespace {

constexpr int64_t kWidth = 16;
constexpr int64_t kMaxColumns = 4 * kWidth; // output channels of a part of a 1 x 1 weight
constexpr int64_t kMaxRows = 512; // pixels that a part goes over,
constexpr int64_t kCachedBytes = 512 << 10; // and their size: the next part finds them in the second-level cache
constexpr int kPixels = 6; // of a row that share the vectors of a weight

__mmask16 mask_of(int64_t count) {
  return static_cast<__mmask16>((1U << std::clamp<int64_t>(count, 0, kWidth)) - 1);
}

XLA_INLINE XLA_FOR_AVX512 __m512 load(__mmask16 which, const float* from) {
  return _mm512_maskz_loadu_ps(which, from);
}

XLA_INLINE XLA_FOR_AVX512 __m512 load(__mmask16 which, const c10::BFloat16* from) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(which, from)), 16));
}

XLA_INLINE XLA_FOR_AVX512 void store(__mmask16 which, float* to, __m512 v) {
  _mm512_mask_storeu_ps(to, which, v);
}

XLA_INLINE XLA_FOR_AVX512 void store(__mmask16 which, c10::BFloat16* to, __m512 v) {
  HalfWords<kWidth> halves;
  round_to_bfloat16<kWidth>(halves, v);
  _mm256_mask_storeu_epi16(to, which, reinterpret_cast<__m256i>(halves));
}

// NaN stays, as in those below.
XLA_INLINE XLA_FOR_AVX512 __m512 relu(__m512 v) {
  return _mm512_max_ps(_mm512_setzero_ps(), v);
}

XLA_INLINE XLA_FOR_AVX512 __m512 hardswish(__m512 v) {
  return v * _mm512_min_ps(_mm512_set1_ps(6), relu(v + _mm512_set1_ps(3))) / _mm512_set1_ps(6);
}

XLA_INLINE XLA_FOR_AVX512 __m512 silu(__m512 v) {
  Vector<kWidth> e = -_mm512_abs_ps(v);
  exponentiate<kWidth>(e);
  const Vector<kWidth> ones = Vector<kWidth>{} + 1;
  return v * (v < Vector<kWidth>{} ? e : ones) / (ones + e);
}

XLA_FOR_AVX512 inline __m512 activate(__m512 v, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return relu(v);
    case Activation::kHardswish:
      return hardswish(v);
    case Activation::kSilu:
      return silu(v);
    default:
      return v;
  }
}

// ---- Pixels ----

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

// ---- Channels ----

// One row of output pixels.
template <typename T>
struct Row {
  const ImageConvolution& c;
  const T* image; // the input's
  T* out;
  int64_t top; // input row of the kernel's first
  int64_t first, last; // the kernel's rows within the image
};

// Output pixels of kWidth channels or fewer.
template <int kCount>
struct Block {
  const ImageConvolution& c;
  const int64_t channel;
  const __mmask16 which;
  __m512 sums[kCount];

  XLA_INLINE XLA_FOR_AVX512 Block(const ImageConvolution& c, int64_t channel)
      : c(c), channel(channel), which(mask_of(c.channels - channel)) {
    const __m512 bias = c.bias ? read(c.bias) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      sums[i] = bias;
    }
  }
  template <typename T>
  XLA_INLINE XLA_FOR_AVX512 __m512 read(const T* from) const {
    return load(which, from + channel);
  }
  template <typename T>
  XLA_INLINE XLA_FOR_AVX512 void write(T* out) const {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      store(which, out + i * c.channels + channel, activate(sums[i], c.activation));
    }
  }
};

// `kCount` adjacent output pixels from `x` on, of stride 1 and a kernel of kSize columns. Reads each input once; those beyond the image are
// left out.
template <int kCount, int kSize, typename T>
XLA_INLINE XLA_FOR_AVX512 void convolve_adjacent(const Row<T>& r, int64_t x) {
  const ImageConvolution& c = r.c;
  const int64_t left = x - c.padding[1];
  const int64_t begin = -left, end = c.image[1] - left; // of the image
  for (int64_t channel = 0; channel < c.channels; channel += kWidth) {
    Block<kCount> block(c, channel);
    for (int64_t ky = r.first; ky < r.last; ++ky) {
      const T* in = r.image + ((r.top + ky) * c.image[1] + left) * c.channels;
      __m512 factors[kSize];
#pragma GCC unroll 8
      for (int kx = 0; kx < kSize; ++kx) {
        factors[kx] = block.read(static_cast<const float*>(c.weight) + (ky * kSize + kx) * c.channels);
      }
#pragma GCC unroll 12
      for (int j = 0; j < kCount + kSize - 1; ++j) {
        if (j < begin || j >= end) {
          continue;
        }
        const __m512 pixel = block.read(in + j * c.channels);
#pragma GCC unroll 8
        for (int kx = 0; kx < kSize; ++kx) {
          if (const int i = j - kx; i >= 0 && i < kCount) {
            block.sums[i] = _mm512_fmadd_ps(pixel, factors[kx], block.sums[i]);
          }
        }
      }
    }
    block.write(r.out + x * c.channels);
  }
}

// The same of any stride and kernel, by the kernel's columns [first, last).
template <int kCount, typename T>
XLA_INLINE XLA_FOR_AVX512 void convolve_any(const Row<T>& r, int64_t x, int64_t first, int64_t last) {
  const ImageConvolution& c = r.c;
  const int64_t step = c.stride[1] * c.channels;
  for (int64_t channel = 0; channel < c.channels; channel += kWidth) {
    Block<kCount> block(c, channel);
    for (int64_t ky = r.first; ky < r.last; ++ky) {
      const T* in = r.image + ((r.top + ky) * c.image[1] + x * c.stride[1] - c.padding[1]) * c.channels;
      const float* weight = static_cast<const float*>(c.weight) + ky * c.kernel[1] * c.channels;
      for (int64_t kx = first; kx < last; ++kx) {
        const __m512 factor = block.read(weight + kx * c.channels);
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i) {
          block.sums[i] = _mm512_fmadd_ps(block.read(in + kx * c.channels + i * step), factor, block.sums[i]);
        }
      }
    }
    block.write(r.out + x * c.channels);
  }
}

template <int kSize, typename T>
XLA_FOR_AVX512 void convolve_row_of_stride_1(const Row<T>& row) {
  const ImageConvolution c = row.c; // copies stay in registers
  const Row<T> r{c, row.image, row.out, row.top, row.first, row.last};
  const int64_t width = r.c.out_image[1];
  int64_t x = 0;
  for (; x + kPixels <= width; x += kPixels) {
    convolve_adjacent<kPixels, kSize>(r, x);
  }
  for (; x + kPixels / 2 <= width; x += kPixels / 2) {
    convolve_adjacent<kPixels / 2, kSize>(r, x);
  }
  for (; x < width; ++x) {
    convolve_adjacent<1, kSize>(r, x);
  }
}

template <typename T>
XLA_FOR_AVX512 void convolve_any_row(const Row<T>& row) {
  const ImageConvolution c = row.c;
  const Row<T> r{c, row.image, row.out, row.top, row.first, row.last};
  const int64_t width = c.out_image[1];
  auto is_inside = [&c, width](int64_t x, int64_t count) { // all inputs of these pixels
    const int64_t left = x * c.stride[1] - c.padding[1];
    return left >= 0 && left + (count - 1) * c.stride[1] + c.kernel[1] <= c.image[1] && x + count <= width;
  };
  for (int64_t x = 0; x < width;) {
    if (is_inside(x, kPixels)) {
      convolve_any<kPixels>(r, x, 0, c.kernel[1]);
      x += kPixels;
    } else if (is_inside(x, kPixels / 2)) {
      convolve_any<kPixels / 2>(r, x, 0, c.kernel[1]);
      x += kPixels / 2;
    } else {
      const int64_t left = x * c.stride[1] - c.padding[1];
      const int64_t first = std::max<int64_t>(0, -left);
      convolve_any<1>(r, x, first, std::max(first, std::min(c.kernel[1], c.image[1] - left)));
      ++x;
    }
  }
}

template <typename T>
void convolve_row(const Row<T>& r) {
  const int64_t size = r.c.stride[1] == 1 ? r.c.kernel[1] : 0;
  size == 3       ? convolve_row_of_stride_1<3>(r)
      : size == 5 ? convolve_row_of_stride_1<5>(r)
      : size == 7 ? convolve_row_of_stride_1<7>(r)
                  : convolve_any_row(r);
}

template <typename T>
void share_rows(const ImageConvolution& c) {
  const int64_t height = c.out_image[0];
  const int64_t work = c.out_pixels() * c.channels * c.kernel[0] * c.kernel[1] / kProductsPerThread;
  share_out(c.batch * height, 1, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t top = i % height * c.stride[0] - c.padding[0];
      const T* image = static_cast<const T*>(c.input) + i / height * c.image[0] * c.image[1] * c.channels;
      const int64_t first = std::max<int64_t>(0, -top);
      const int64_t last = std::max(first, std::min(c.kernel[0], c.image[0] - top));
      convolve_row<T>({c, image, static_cast<T*>(c.out) + i * c.out_image[1] * c.channels, top, first, last});
    }
  });
}

} // namespace

bool can_convolve_pixels(DType dtype) {
  static const bool multiplies_pairs = __builtin_cpu_supports("avx512bf16") && !at::native::cpublas::could_pack(at::kBFloat16);
  return has_avx512() && (dtype == DType::F32 || multiplies_pairs);
}

bool can_convolve_channels() {
  return has_avx512();
}

int64_t pixel_weight_columns(int64_t out_channels) {
  return Parts(out_channels, kMaxColumns, kWidth).length;
}

void convolve_pixels(const ImageConvolution& c) {
  c.dtype == DType::F32 ? share_pixels<float>(c) : share_pixels<c10::BFloat16>(c);
}

void convolve_channels(const ImageConvolution& c) {
  c.dtype == DType::F32 ? share_rows<float>(c) : share_rows<c10::BFloat16>(c);
}

#else

bool can_convolve_pixels(DType /*dtype*/) {
  return false;
}

bool can_convolve_channels() {
  return false;
}

int64_t pixel_weight_columns(int64_t out_channels) {
  return out_channels;
}

void convolve_pixels(const ImageConvolution& /*convolution*/) {
  XLA_ASSERT(false, "no code for this processor");
}

void convolve_channels(const ImageConvolution& /*convolution*/) {
  XLA_ASSERT(false, "no code for this processor");
}

#endif

} // namespace torch_xla::cpu
