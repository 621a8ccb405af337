// Convolutions that ATen and oneDNN take longer to begin than to compute: of 1 x 1 weights with few products, and of each channel by
// itself.
#pragma once

#include <array>
#include <cstdint>

namespace torch_xla::cpu {

enum class Activation : uint8_t { kNone, kRelu, kHardswish, kSilu };

// Of float32 images, channels-last: [batch, height, width, channels].
struct ImageConvolution {
  int64_t batch, channels, out_channels;
  std::array<int64_t, 2> image, out_image, kernel, stride, padding; // height, width
  const float* input;
  const float* weight; // [kernel, kernel, channels, out_channels]; by channel: [kernel, kernel, channels]
  const float* bias; // [out_channels]; null: none
  float* out; // shares no memory with the others
  Activation activation;

  int64_t out_pixels() const {
    return batch * out_image[0] * out_image[1];
  }
};

// Whether the functions below have code for this processor.
bool can_convolve_images();

// Of a 1 x 1 weight, stride 1, no padding, by oneDNN's products of small blocks. Uses the calling thread's team; each number is summed in
// the same order for any number of threads.
void convolve_pixels(const ImageConvolution& convolution);

// Each channel by a kernel of its own: out_channels is channels. The same of threads.
void convolve_channels(const ImageConvolution& convolution);

} // namespace torch_xla::cpu
