// The order in which a program's convolutions, and their gradients, read images.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace torch_xla::cpu {

enum class ImageOrder : uint8_t { kAsGiven, kRowMajor, kChannelsLast };

// The operands of a convolution of images, float32 or bfloat16, that is not transposed, or of the gradient of one.
struct ImageConvolution {
  static std::optional<ImageConvolution> find(const Graph& graph, const Node& node);

  size_t weight; // the operand behind the images
  int64_t image_elements; // of the convolution's input and result
};

// The order of images that a program's convolutions read, and so write. Channels-last images are at least as fast, except in training with
// weights that are large beside them (kWeightShare). Orders stay as they are if most images would have to be copied: for views of groups of
// channels, or because they come from other programs or go to them.
class ImageOrders {
 public:
  explicit ImageOrders(const Graph& graph);

  ImageOrder find(const ImageConvolution& convolution, int64_t weight_elements) const;

 private:
  bool any_ = false;
  bool gradients_ = false;
};

} // namespace torch_xla::cpu
