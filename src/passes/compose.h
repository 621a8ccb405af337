// Geometry of views: when a view of a view is one view.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace torch_xla {

// The attributes of a view node and the extents at both ends.
struct ViewGeometry {
  Dims base_dims; // of the operand
  Dims base_strides;
  Dims dims; // of the result
  Dims strides;
  int64_t offset = 0;
};

ViewGeometry view_geometry(const Graph& graph, const Node& node);
// True when the view shows its operand's elements unchanged.
bool is_identity(const ViewGeometry& view);
// `outer` looks at the result of `inner`. Nothing where no single view is proven to address the same elements.
std::optional<ViewGeometry> compose_views(const ViewGeometry& inner, const ViewGeometry& outer);

} // namespace torch_xla
