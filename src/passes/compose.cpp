// Composition of views by splitting the outer view's steps into steps along the inner view's dims.
#include "passes/compose.h"

#include <algorithm>

namespace torch_xla {
namespace {

// A dim between the two views: the outer view walks it with outer_stride, the inner with inner_stride.
struct Axis {
  int64_t extent;
  int64_t outer_stride;
  int64_t inner_stride;
  int64_t last = 0; // index of the last element that the outer view reaches
};
using Axes = std::vector<Axis>;

// The dims with more than one element, slowest first; nothing where the outer view's base strides are not dense: they number the
// inner view's elements with gaps or twice.
std::optional<Axes> make_axes(const ViewGeometry& inner, const ViewGeometry& outer) {
  Axes axes;
  for (size_t i = 0; i < inner.dims.size(); ++i) {
    if (inner.dims[i] != 1) {
      axes.push_back({inner.dims[i], outer.base_strides[i], inner.strides[i]});
    }
  }
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.outer_stride > b.outer_stride; });
  int64_t step = 1;
  for (size_t i = axes.size(); i-- > 0; step *= axes[i].extent) {
    if (axes[i].outer_stride != step) {
      return std::nullopt;
    }
  }
  return axes;
}

// Joins neighbours that the inner view walks as one, so that the outer view may split them elsewhere.
Axes join_axes(const Axes& axes) {
  Axes joined;
  for (const Axis& axis : axes) {
    if (!joined.empty() && joined.back().inner_stride == axis.inner_stride * axis.extent) {
      joined.back() = {joined.back().extent * axis.extent, axis.outer_stride, axis.inner_stride};
    } else {
      joined.push_back(axis);
    }
  }
  return joined;
}

// The slowest axis of which the stride is a multiple.
Axis* find_axis(Axes& axes, int64_t stride) {
  for (Axis& axis : axes) {
    if (axis.outer_stride <= stride && stride % axis.outer_stride == 0) {
      return &axis;
    }
  }
  return nullptr;
}

// Writes the outer offset as an index on each axis; returns the inner view's offset for it.
int64_t split_offset(Axes& axes, int64_t offset) {
  int64_t inner_offset = 0;
  for (Axis& axis : axes) {
    axis.last = offset / axis.outer_stride;
    offset %= axis.outer_stride;
    inner_offset += axis.last * axis.inner_stride;
  }
  return inner_offset;
}

// The stride in the inner view's memory of one dim of the outer view.
std::optional<int64_t> split_stride(Axes& axes, int64_t extent, int64_t stride) {
  if (extent == 1 || stride == 0) {
    return 0;
  }
  Axis* axis = find_axis(axes, stride);
  if (!axis) {
    return std::nullopt;
  }
  int64_t steps = stride / axis->outer_stride;
  axis->last += (extent - 1) * steps;
  return steps * axis->inner_stride;
}

bool has_negative(const ViewGeometry& view) {
  return view.offset < 0 || std::any_of(view.strides.begin(), view.strides.end(), [](int64_t s) { return s < 0; });
}

} // namespace

ViewGeometry view_geometry(const Graph& graph, const Node& node) {
  return {
      graph.type(node.operands[0]).dims,
      std::get<std::vector<int64_t>>(node.attrs[kViewBaseStrides]),
      graph.type(node.first_result).dims,
      std::get<std::vector<int64_t>>(node.attrs[kViewStrides]),
      std::get<int64_t>(node.attrs[kViewOffset])};
}

bool is_identity(const ViewGeometry& view) {
  if (view.base_dims != view.dims) {
    return false;
  }
  if (num_elements(view.dims) == 0) {
    return true;
  }
  for (size_t i = 0; i < view.dims.size(); ++i) {
    if (view.dims[i] != 1 && view.strides[i] != view.base_strides[i]) {
      return false;
    }
  }
  return view.offset == 0;
}

std::optional<ViewGeometry> compose_views(const ViewGeometry& inner, const ViewGeometry& outer) {
  if (num_elements(outer.dims) == 0 || num_elements(inner.dims) == 0 || has_negative(inner) || has_negative(outer)) {
    return std::nullopt;
  }
  std::optional<Axes> dense = make_axes(inner, outer);
  if (!dense) {
    return std::nullopt;
  }
  Axes axes = join_axes(*dense);
  ViewGeometry composed{inner.base_dims, inner.base_strides, outer.dims, Dims(), inner.offset + split_offset(axes, outer.offset)};
  for (size_t i = 0; i < outer.dims.size(); ++i) {
    std::optional<int64_t> stride = split_stride(axes, outer.dims[i], outer.strides[i]);
    if (!stride) {
      return std::nullopt;
    }
    composed.strides.push_back(*stride);
  }
  // No axis is left at its end, so that no step carries over into the next one.
  bool stays_inside = std::all_of(axes.begin(), axes.end(), [](const Axis& a) { return a.last < a.extent; });
  return stays_inside ? std::optional<ViewGeometry>(composed) : std::nullopt;
}

} // namespace torch_xla
