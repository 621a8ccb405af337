// A 1 x 1 convolution is a product of pixels by the weight; a block of it gets bias and activation while it is in the cache. A convolution
// by channel has vectors of channels, and a few pixels at a time that share the weight's vectors.
#include "engine/cpu/few_rows/small_convolutions.h"

#include <ATen/Context.h>
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
constexpr int64_t kMaxRows = 128; // of a block: pixels,
constexpr int64_t kMaxColumns = 256; // and output channels
constexpr int kPixels = 6; // of a row that share the vectors of a weight

__mmask16 mask_of(int64_t count) {
  return static_cast<__mmask16>((1U << std::clamp<int64_t>(count, 0, kWidth)) - 1);
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

XLA_FOR_AVX512 void finish_block(const ImageConvolution& c, float* out, int64_t rows, int64_t columns, const float* bias) {
  for (int64_t j = 0; j < columns; j += kWidth) {
    const __mmask16 which = mask_of(columns - j);
    const __m512 added = bias ? _mm512_maskz_loadu_ps(which, bias + j) : _mm512_setzero_ps();
    for (int64_t i = 0; i < rows; ++i) {
      float* at = out + i * c.out_channels + j;
      _mm512_mask_storeu_ps(at, which, activate(_mm512_maskz_loadu_ps(which, at) + added, c.activation));
    }
  }
}

void convolve_block(const ImageConvolution& c, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  float* out = c.out + row * c.out_channels + column;
  const float* in = c.input + row * c.channels;
  at::native::cpublas::brgemm(
      rows, columns, c.channels, c.channels, c.out_channels, c.out_channels, false, in, c.weight + column, out, false);
  if (c.bias || c.activation != Activation::kNone) {
    finish_block(c, out, rows, columns, c.bias ? c.bias + column : nullptr);
  }
}

// ---- Channels ----

// One row of output pixels.
struct Row {
  const ImageConvolution c;
  const float* image; // the input's
  float* out;
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
    const __m512 bias = c.bias ? _mm512_maskz_loadu_ps(which, c.bias + channel) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      sums[i] = bias;
    }
  }
  XLA_INLINE XLA_FOR_AVX512 __m512 load(const float* from) const {
    return _mm512_maskz_loadu_ps(which, from + channel);
  }
  XLA_INLINE XLA_FOR_AVX512 void store(float* out) const {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      _mm512_mask_storeu_ps(out + i * c.channels + channel, which, activate(sums[i], c.activation));
    }
  }
};

// `kCount` adjacent output pixels from `x` on, of stride 1 and a kernel of kSize columns. Reads each input once; those beyond the image are
// left out.
template <int kCount, int kSize>
XLA_INLINE XLA_FOR_AVX512 void convolve_adjacent(const Row& r, int64_t x) {
  const ImageConvolution& c = r.c;
  const int64_t left = x - c.padding[1];
  const int64_t begin = -left, end = c.image[1] - left; // of the image
  for (int64_t channel = 0; channel < c.channels; channel += kWidth) {
    Block<kCount> block(c, channel);
    for (int64_t ky = r.first; ky < r.last; ++ky) {
      const float* in = r.image + ((r.top + ky) * c.image[1] + left) * c.channels;
      __m512 factors[kSize];
#pragma GCC unroll 8
      for (int kx = 0; kx < kSize; ++kx) {
        factors[kx] = block.load(c.weight + (ky * kSize + kx) * c.channels);
      }
#pragma GCC unroll 12
      for (int j = 0; j < kCount + kSize - 1; ++j) {
        if (j < begin || j >= end) {
          continue;
        }
        const __m512 pixel = block.load(in + j * c.channels);
#pragma GCC unroll 8
        for (int kx = 0; kx < kSize; ++kx) {
          if (const int i = j - kx; i >= 0 && i < kCount) {
            block.sums[i] = _mm512_fmadd_ps(pixel, factors[kx], block.sums[i]);
          }
        }
      }
    }
    block.store(r.out + x * c.channels);
  }
}

// The same of any stride and kernel, by the kernel's columns [first, last).
template <int kCount>
XLA_INLINE XLA_FOR_AVX512 void convolve_any(const Row& r, int64_t x, int64_t first, int64_t last) {
  const ImageConvolution& c = r.c;
  const int64_t step = c.stride[1] * c.channels;
  for (int64_t channel = 0; channel < c.channels; channel += kWidth) {
    Block<kCount> block(c, channel);
    for (int64_t ky = r.first; ky < r.last; ++ky) {
      const float* in = r.image + ((r.top + ky) * c.image[1] + x * c.stride[1] - c.padding[1]) * c.channels;
      const float* weight = c.weight + ky * c.kernel[1] * c.channels;
      for (int64_t kx = first; kx < last; ++kx) {
        const __m512 factor = block.load(weight + kx * c.channels);
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i) {
          block.sums[i] = _mm512_fmadd_ps(block.load(in + kx * c.channels + i * step), factor, block.sums[i]);
        }
      }
    }
    block.store(r.out + x * c.channels);
  }
}

template <int kSize>
XLA_FOR_AVX512 void convolve_row_of_stride_1(const Row& row) {
  const Row r = row; // copies stay in registers
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

XLA_FOR_AVX512 void convolve_any_row(const Row& row) {
  const Row r = row;
  const ImageConvolution& c = r.c;
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

void convolve_row(const Row& r) {
  const int64_t size = r.c.stride[1] == 1 ? r.c.kernel[1] : 0;
  size == 3       ? convolve_row_of_stride_1<3>(r)
      : size == 5 ? convolve_row_of_stride_1<5>(r)
      : size == 7 ? convolve_row_of_stride_1<7>(r)
                  : convolve_any_row(r);
}

} // namespace

bool can_convolve_images() {
  return has_avx512() && at::globalContext().userEnabledMkldnn();
}

void convolve_pixels(const ImageConvolution& c) {
  const Parts rows(c.out_pixels(), kMaxRows, 1);
  const Parts columns(c.out_channels, kMaxColumns, kWidth);
  const int64_t work = c.out_pixels() * c.channels * c.out_channels / kProductsPerThread;
  share_out(rows.count() * columns.count(), 1, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / columns.count(), column = i % columns.count();
      convolve_block(c, row * rows.length, rows.length_of(row), column * columns.length, columns.length_of(column));
    }
  });
}

void convolve_channels(const ImageConvolution& c) {
  const int64_t height = c.out_image[0];
  const int64_t work = c.out_pixels() * c.channels * c.kernel[0] * c.kernel[1] / kProductsPerThread;
  share_out(c.batch * height, 1, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t top = i % height * c.stride[0] - c.padding[0];
      const float* image = c.input + i / height * c.image[0] * c.image[1] * c.channels;
      const int64_t first = std::max<int64_t>(0, -top);
      const int64_t last = std::max(first, std::min(c.kernel[0], c.image[0] - top));
      convolve_row({c, image, c.out + i * c.out_image[1] * c.channels, top, first, last});
    }
  });
}

#else

bool can_convolve_images() {
  return false;
}

void convolve_pixels(const ImageConvolution& /*convolution*/) {
  XLA_ASSERT(false, "no code for this processor");
}

void convolve_channels(const ImageConvolution& /*convolution*/) {
  XLA_ASSERT(false, "no code for this processor");
}

#endif

} // namespace torch_xla::cpu
