// The order in which a program's convolutions, and their gradients, read images.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace torch_xla::cpu {

enum class ImageOrder : uint8_t { kAsGiven, kRowMajor, kChannelsLast };

// Operands of an image convolution in float32, bfloat16 or uint8 that is not transposed, or of its gradient.
struct ImageConvolution {
  static std::optional<ImageConvolution> find(const Graph& graph, const Node& node);

  size_t weight; // number of the operand after the images
  int64_t image_elements; // of the convolution's input and result
};

// The order in which a program's convolutions read and write images. Channels-last images are at least as fast, except in training with
// weights that are large beside them (kWeightShare). Orders stay as they are if most images would need a copy: views of groups of channels,
// or images that other programs write or read.
class ImageOrders {
 public:
  explicit ImageOrders(const Graph& graph);

  ImageOrder find(const ImageConvolution& convolution, int64_t weight_elements) const;

 private:
  bool any_ = false;
  bool gradients_ = false;
};

} // namespace torch_xla::cpu
