// Convolutions of 1 x 1 weights and of each channel by itself, with what follows them, where oneDNN takes longer to begin or writes the
// result before others change it.
#pragma once

#include <array>
#include <cstdint>

#include "core/dtype.h"

namespace torch_xla::cpu {

enum class Activation : uint8_t { kNone, kRelu, kHardswish, kSilu };

// Of images of F32 or BF16, channels-last: [batch, height, width, channels].
struct ImageConvolution {
  DType dtype;
  int64_t batch, channels, out_channels;
  std::array<int64_t, 2> image, out_image, kernel, stride, padding; // height, width
  const void* input;
  // By pixel as pixel_weight_columns() says. By channel [kernel, kernel, channels] of F32.
  const void* weight;
  const float* bias; // [out_channels]; null: none
  const void* added; // as `out`, to the sums before the activation; null: none. By pixel only
  void* out; // shares no memory with the others
  Activation activation;

  int64_t out_pixels() const {
    return batch * out_image[0] * out_image[1];
  }
};

// Whether the functions below have code for this processor.
bool can_convolve_pixels(DType dtype);
bool can_convolve_channels();

// The weight of convolve_pixels() is parts of so many output channels, the last one of fewer, one after the other: [channels, part], of
// BF16 in pairs of channels: [channels / 2, part, 2].
int64_t pixel_weight_columns(int64_t out_channels);
// Of a 1 x 1 weight, stride 1, no padding; of BF16 with an even number of channels. Uses the calling thread's team; each number is summed
// in the same order for any number of threads.
void convolve_pixels(const ImageConvolution& convolution);

// Each channel by a kernel of its own: out_channels is channels. The same of threads.
void convolve_channels(const ImageConvolution& convolution);

} // namespace torch_xla::cpu
