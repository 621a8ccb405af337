// Geometry of views: the same view on memory in another order, and when a view of a view is one view.
#pragma once

#include <optional>

#include "ir/graph.h"
#include "ir/strides.h"

namespace torch_xla {

// A base with base_dims is seen as memory in which its elements have base_strides; the view shows, for each index of dims, the element at
// offset + sum(index[d] * strides[d]) of that memory.
struct ViewGeometry {
  Dims base_dims;
  Dims base_strides;
  Dims dims;
  Dims strides;
  int64_t offset = 0;
  ValueId moved_by = kNoValue; // of a moving view, the number that is added to the offset
};

// Of a view node; of a view update: of the part of operand 0 that operand 1 replaces.
ViewGeometry view_geometry(const Graph& graph, const Node& node);
// The attributes of its node.
Attrs view_attrs(const ViewGeometry& view);
// The operands of a view of `base`.
InlineVec<ValueId, 4> view_operands(const ViewGeometry& view, ValueId base);
// True when the view shows its base's elements unchanged.
bool is_identity(const ViewGeometry& view);
// The view of the same elements where the base's memory has other strides. Nothing where no strides are proven to address them.
std::optional<ViewGeometry> rebase_view(const ViewGeometry& view, const Dims& base_strides);
// `outer` looks at the result of `inner`: one view of inner's base. Nothing where none is proven to show the same elements.
std::optional<ViewGeometry> compose_views(const ViewGeometry& inner, const ViewGeometry& outer);

// No two elements share a place, as far as nested strides tell: each is longer than all shorter ones reach.
bool shows_each_once(const Dims& dims, const Dims& strides);

// Between which elements of the base's dims a view lies. The dims are those of more than one element, in the order of their strides.
struct ViewBox {
  Dims first;
  Dims last;
};
// Nothing for a moving view, and where the view's strides are no whole steps along the base's dims.
std::optional<ViewBox> view_box(const ViewGeometry& view);
bool are_apart(const ViewBox& a, const ViewBox& b);
ViewBox box_of_both(const ViewBox& a, const ViewBox& b);

} // namespace torch_xla
