// Decides where each value lies in memory if it is stored at all: strides of values, views as aliases, copies where no alias is possible.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ir/strides.h"

namespace torch_xla::cpu {

// A value in the memory of `root`, in elements. A value that is no view is its own root.
struct Place {
  ValueId root = kNoValue;
  int64_t offset = 0;
  Dims strides;
};

struct LaidOutGraph {
  Graph graph;
  std::vector<Place> places; // by value
};

// The graph with what memory needs made explicit: identity conversions where a view needs another memory order or an output needs memory of
// its own, large full reductions in two levels, reductions over extents of 1 as identities. Views get base strides, strides and offset in
// terms of their root; view updates those of operand 0's memory order.
LaidOutGraph lay_out(const Graph& graph);

// Equal addresses: extents of 1 do not count.
bool same_strides(const Dims& dims, const Dims& a, const Dims& b);
// Strides of [N, C, spatial...] with the channels innermost.
Dims channels_last_strides(const Dims& dims);

// A view whose numbers are meant on memory with `base_strides`, on memory that has `actual` instead; nullopt when it is no strided view
// there.
struct StridedView {
  int64_t offset = 0;
  Dims strides;
};
std::optional<StridedView> compose_view(
    const Dims& dims, const Dims& base_strides, const Dims& actual, const Dims& view_dims, const StridedView& view);

// Strides in which ATen's CPU kernel is known to return result i of a library node; contiguous where nothing else is known.
Dims predict_library_strides(const Graph& graph, const Node& node, int32_t i, const std::vector<Place>& places);

} // namespace torch_xla::cpu
