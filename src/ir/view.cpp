// Rebases views by writing each distance as steps along the dims of the base.
#include "ir/view.h"

#include <algorithm>

namespace torch_xla {
namespace {

// A dim of the base, or several that are one in both numberings: its stride in the view's numbering, and its actual stride.
struct Axis {
  int64_t extent;
  int64_t meant;
  int64_t actual;
  int64_t last = 0; // index of the last element that the view reaches
};
using Axes = std::vector<Axis>;

// Slowest first. Neighbours that form one dim in both numberings are joined, so that the view may split them elsewhere.
Axes make_axes(const Dims& dims, const Dims& meant, const Dims& actual) {
  Axes sorted;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != 1) {
      sorted.push_back({dims[d], meant[d], actual[d]});
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Axis& a, const Axis& b) { return a.meant > b.meant; });
  Axes joined;
  for (const Axis& axis : sorted) {
    bool one = !joined.empty() && joined.back().meant == axis.meant * axis.extent && joined.back().actual == axis.actual * axis.extent;
    if (one) {
      joined.back() = {joined.back().extent * axis.extent, axis.meant, axis.actual};
    } else {
      joined.push_back(axis);
    }
  }
  return joined;
}

// Steps that are taken `count` times; their length in actual strides. Nothing if no whole steps make the distance.
std::optional<int64_t> walk(Axes& axes, int64_t distance, int64_t count) {
  int64_t result = 0;
  for (Axis& axis : axes) {
    int64_t steps = axis.meant > 0 ? distance / axis.meant : 0;
    distance -= steps * axis.meant;
    result += steps * axis.actual;
    axis.last += steps * count;
  }
  return distance == 0 ? std::optional<int64_t>(result) : std::nullopt;
}

// No axis is left at its end, so that no step carries over into the next one.
bool stays_inside(const Axes& axes) {
  return std::all_of(axes.begin(), axes.end(), [](const Axis& a) { return a.last < a.extent; });
}

} // namespace

ViewGeometry view_geometry(const Graph& graph, const Node& node) {
  const bool updates = node.op->kind == OpKind::kViewUpdate;
  ValueId shown = updates ? node.operands[1] : node.result();
  const size_t tensors = updates ? 2 : 1;
  return {
      graph.type(node.operands[0]).dims,
      std::get<Dims>(node.attrs[kViewBaseStrides]),
      graph.type(shown).dims,
      std::get<Dims>(node.attrs[kViewStrides]),
      std::get<int64_t>(node.attrs[kViewOffset]),
      node.operands.size() > tensors ? node.operands[tensors] : kNoValue};
}

Attrs view_attrs(const ViewGeometry& view) {
  return {view.base_strides, view.strides, view.offset};
}

InlineVec<ValueId, 4> view_operands(const ViewGeometry& view, ValueId base) {
  InlineVec<ValueId, 4> operands{base};
  if (view.moved_by != kNoValue) {
    operands.push_back(view.moved_by);
  }
  return operands;
}

bool is_identity(const ViewGeometry& view) {
  if (view.base_dims != view.dims || view.moved_by != kNoValue) {
    return false;
  }
  return num_elements(view.dims) == 0 || (view.offset == 0 && same_strides(view.dims, view.strides, view.base_strides));
}

std::optional<ViewGeometry> rebase_view(const ViewGeometry& view, const Dims& base_strides) {
  ViewGeometry result{view.base_dims, base_strides, view.dims, view.strides, view.offset, view.moved_by};
  if (num_elements(view.dims) == 0 || same_strides(view.base_dims, view.base_strides, base_strides)) {
    return result;
  }
  if (view.moved_by != kNoValue) {
    return std::nullopt; // the steps of its number are unknown
  }
  Axes axes = make_axes(view.base_dims, view.base_strides, base_strides);
  std::optional<int64_t> offset = walk(axes, view.offset, 1);
  if (!offset) {
    return std::nullopt;
  }
  result.offset = *offset;
  for (size_t d = 0; d < view.dims.size(); ++d) {
    std::optional<int64_t> stride = view.dims[d] == 1 ? 0 : walk(axes, view.strides[d], view.dims[d] - 1);
    if (!stride) {
      return std::nullopt;
    }
    result.strides[d] = *stride;
  }
  return stays_inside(axes) ? std::optional<ViewGeometry>(std::move(result)) : std::nullopt;
}

std::optional<ViewGeometry> compose_views(const ViewGeometry& inner, const ViewGeometry& outer) {
  std::optional<ViewGeometry> placed = rebase_view(outer, inner.strides);
  if (!placed || (inner.moved_by != kNoValue && outer.moved_by != kNoValue)) {
    return std::nullopt;
  }
  for (size_t d = 0; d < outer.dims.size(); ++d) {
    placed->strides[d] = outer.dims[d] == 1 ? 0 : placed->strides[d]; // equal views have equal attributes
  }
  ValueId moved_by = inner.moved_by == kNoValue ? outer.moved_by : inner.moved_by;
  return ViewGeometry{inner.base_dims, inner.base_strides, outer.dims, std::move(placed->strides), inner.offset + placed->offset, moved_by};
}

bool shows_each_once(const Dims& dims, const Dims& strides) {
  std::vector<std::pair<int64_t, int64_t>> steps; // stride, extent
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] > 1) {
      steps.emplace_back(strides[d], dims[d]);
    }
  }
  std::sort(steps.begin(), steps.end());
  int64_t reach = 0; // of the dims with smaller strides
  for (auto [stride, extent] : steps) {
    if (stride <= reach) {
      return false;
    }
    reach += stride * (extent - 1);
  }
  return true;
}

std::optional<ViewBox> view_box(const ViewGeometry& view) {
  const Dims apart(view.base_dims.size(), 1); // so that no two dims are joined
  Axes axes = make_axes(view.base_dims, view.base_strides, apart);
  if (view.moved_by != kNoValue || num_elements(view.dims) == 0 || !walk(axes, view.offset, 1)) {
    return std::nullopt;
  }
  ViewBox box;
  for (const Axis& axis : axes) {
    box.first.push_back(axis.last);
  }
  for (size_t d = 0; d < view.dims.size(); ++d) {
    if (view.dims[d] > 1 && !walk(axes, view.strides[d], view.dims[d] - 1)) {
      return std::nullopt;
    }
  }
  for (const Axis& axis : axes) {
    box.last.push_back(axis.last);
  }
  return stays_inside(axes) ? std::optional(std::move(box)) : std::nullopt;
}

bool are_apart(const ViewBox& a, const ViewBox& b) {
  for (size_t d = 0; d < a.first.size(); ++d) {
    if (a.last[d] < b.first[d] || b.last[d] < a.first[d]) {
      return true;
    }
  }
  return false;
}

ViewBox box_of_both(const ViewBox& a, const ViewBox& b) {
  ViewBox both;
  for (size_t d = 0; d < a.first.size(); ++d) {
    both.first.push_back(std::min(a.first[d], b.first[d]));
    both.last.push_back(std::max(a.last[d], b.last[d]));
  }
  return both;
}

} // namespace torch_xla
