// Memory orders that ATen's kernels return.
#pragma once

#include "engine/cpu/place.h"

namespace torch_xla::cpu {

// Strides of [N, C, spatial...] with the channels innermost.
Dims channels_last_strides(const Dims& dims);

// Strides in which ATen's CPU kernel is known to return result i of a library node; contiguous where nothing else is known.
Dims predict_library_strides(const Graph& graph, const Node& node, int32_t i, const std::vector<Place>& places);

} // namespace torch_xla::cpu
