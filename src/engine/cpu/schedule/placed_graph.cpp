// Nodes with their places, one after the other.
#include "engine/cpu/schedule/placed_graph.h"

#include <utility>

#include "ir/strides.h"

namespace torch_xla::cpu {

ValueId PlacedGraph::append(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, const Type& type, Dims strides) {
  ValueId v = graph_.add_node(op, std::move(operands), std::move(attrs), std::span<const Type>(&type, 1), location_);
  places_.push_back({v, 0, std::move(strides)});
  return v;
}

ValueId PlacedGraph::copy_as(ValueId v, const Dims& strides) {
  Type type = graph_.type(v);
  return append(prim_op(Prim::kConvert), {v}, {}, type, strides);
}

ValueId PlacedGraph::in_order(ValueId v, const Dims& strides) {
  return same_strides(graph_.type(v).dims, places_[v].strides, strides) ? v : copy_as(v, strides);
}

// A view of a computed value forces a store.
ValueId PlacedGraph::stored(ValueId v, const Dims& dims) {
  return reshape(append(prim_op(Prim::kConvert), {v}, {}, {graph_.type(v).dtype, dims}, contiguous_strides(dims)), dims);
}

ValueId PlacedGraph::iota(const Dims& dims, int64_t dim, DType dtype) {
  return append(prim_op(Prim::kIota), {}, {dim}, {dtype, dims}, contiguous_strides(dims));
}

ValueId PlacedGraph::integer(int64_t number, DType dtype) {
  return append(prim_op(Prim::kConstant), {}, {number}, {dtype, {}}, {});
}

ValueId PlacedGraph::combine(Prim prim, ValueId a, ValueId b) {
  const Type type{graph_.type(a).dtype, broadcast_dims(graph_.type(a).dims, graph_.type(b).dims)};
  return append(prim_op(prim), {a, b}, {}, type, contiguous_strides(type.dims));
}

ValueId PlacedGraph::in_memory(ValueId v) {
  return graph_.values[v].kind == ValueKind::kScalar ? copy_as(v, {}) : v;
}

Dims PlacedGraph::order_of_operands(const Dims& dims, const InlineVec<ValueId, 4>& operands) const {
  for (ValueId v : operands) {
    const Type& type = graph_.type(v);
    if (type.dims == dims && type.dims.size() > 1 && is_dense(dims, places_[v].strides)) {
      return places_[v].strides;
    }
  }
  return contiguous_strides(dims);
}

ValueId PlacedGraph::reshape(ValueId x, const Dims& dims) {
  Dims from = graph_.type(x).dims;
  return add_view({from, contiguous_strides(from), dims, contiguous_strides(dims), 0}, x);
}

ValueId PlacedGraph::add_view(const ViewGeometry& view, ValueId x) {
  auto placed = rebase_view(view, places_[x].strides);
  const bool moves_twice = view.moved_by != kNoValue && places_[x].moved_by >= 0;
  if (!placed || moves_twice) {
    x = copy_as(x, view.base_strides);
    placed = view;
  }
  Place place{places_[x].root, places_[x].offset + placed->offset, placed->strides, places_[x].moved_by};
  if (view.moved_by != kNoValue) {
    place.moved_by = graph_.values[view.moved_by].index;
  }
  const Type type{graph_.type(x).dtype, view.dims};
  ValueId v = append(kViewOp, view_operands(*placed, x), view_attrs(*placed), type, {});
  places_[v] = std::move(place);
  return v;
}

} // namespace torch_xla::cpu
