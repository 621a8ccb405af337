// The order in which a program's convolutions read images.
#pragma once

#include "ir/graph.h"

namespace torch_xla::cpu {

// A convolution of images, float32 or bfloat16, that is not transposed.
bool is_image_convolution(const Graph& graph, const Node& node);

// Whether these shall read channels-last images, and so give them. In a program without gradients of any they are faster then, or no
// slower, unless most of their results would have to be copied; where there are gradients it depends on sizes.
bool prefers_channels_last(const Graph& graph);

} // namespace torch_xla::cpu
