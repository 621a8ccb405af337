// Geometry of views: the same view on memory in another order, and when a view of a view is one view.
#pragma once

#include <optional>

#include "ir/graph.h"
#include "ir/strides.h"

namespace torch_xla {

// The base's elements, of base_dims, lie in memory with base_strides. For each index of dims the view shows the element at offset +
// sum(index[d] * strides[d]) of that memory.
struct ViewGeometry {
  Dims base_dims;
  Dims base_strides;
  Dims dims;
  Dims strides;
  int64_t offset = 0;
  ValueId moved_by = kNoValue; // a moving view's number, added to the offset
};

// The geometry of a view node; for a view update, of the part of operand 0 that operand 1 replaces.
ViewGeometry view_geometry(const Graph& graph, const Node& node);
// The attributes of the view's node.
Attrs view_attrs(const ViewGeometry& view);
// The operands of a view of `base`.
InlineVec<ValueId, 4> view_operands(const ViewGeometry& view, ValueId base);
// True when the view shows its base's elements unchanged.
bool is_identity(const ViewGeometry& view);
// The view of the same elements for a base with other strides. Nothing if no strides are proven to address them.
std::optional<ViewGeometry> rebase_view(const ViewGeometry& view, const Dims& base_strides);
// `outer` is a view of the result of `inner`: gives one view of inner's base. Nothing if none is proven to show the same elements.
std::optional<ViewGeometry> compose_views(const ViewGeometry& inner, const ViewGeometry& outer);

// True if no two elements share a place by the rule of nested strides: each stride is longer than the span of all shorter ones.
bool shows_each_once(const Dims& dims, const Dims& strides);

// The box of the base that a view lies in. Its dims are the base's dims with more than one element, in the order of their strides.
struct ViewBox {
  Dims first;
  Dims last;
};
// Nothing for a moving view, and if the view's strides are no whole steps along the base's dims.
std::optional<ViewBox> view_box(const ViewGeometry& view);
bool are_apart(const ViewBox& a, const ViewBox& b);
ViewBox box_of_both(const ViewBox& a, const ViewBox& b);

} // namespace torch_xla
