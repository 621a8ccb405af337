// A convolution by channel has vectors of channels, and a few pixels at a time that share the weight's vectors. Sums stay in registers from
// the first product to the activation.
#include <algorithm>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/activations.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {

#if defined(__x86_64__)
namespace {

constexpr int64_t kWidth = kImageWidth;
constexpr int kPixels = 6; // of a row that share the vectors of a weight

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

bool can_convolve_channels() {
  return has_avx512();
}

void convolve_channels(const ImageConvolution& c) {
  c.dtype == DType::F32 ? share_rows<float>(c) : share_rows<c10::BFloat16>(c);
}

#else

bool can_convolve_channels() {
  return false;
}

void convolve_channels(const ImageConvolution& /*convolution*/) {
  XLA_ASSERT(false, "no code for this processor");
}

#endif

} // namespace torch_xla::cpu
