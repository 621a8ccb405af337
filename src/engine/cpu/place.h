// Where the values of a graph lie in memory. Layout decides it; kernels, library calls and the memory plan read it.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace torch_xla::cpu {

// A value in the memory of `root`, in elements. A value that is no view is its own root.
struct Place {
  ValueId root = kNoValue;
  int64_t offset = 0;
  Dims strides;
  int32_t moved_by = -1; // moving view: the position among Graph::scalars of the number added to the offset
};

// The strides wanted for output i.
inline Dims order_of_output(const Graph& graph, size_t i) {
  Dims strides = graph.strides_of_output(i);
  return strides.empty() ? contiguous_strides(graph.type(graph.outputs[i]).dims) : strides;
}

struct LaidOutGraph {
  Graph graph;
  std::vector<Place> places; // by value
};

} // namespace torch_xla::cpu
