// Memory orders that ATen's kernels return.
#pragma once

#include "engine/cpu/place.h"

namespace torch_xla::cpu {

// Strides of [N, C, spatial...] with the channels innermost.
Dims channels_last_strides(const Dims& dims);

// Known strides of result i of a library node from ATen's CPU kernel; contiguous if unknown.
Dims predict_library_strides(const Graph& graph, const Node& node, int32_t i, const std::vector<Place>& places);

} // namespace torch_xla::cpu
