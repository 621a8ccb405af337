// A graph under construction, with places of its values in memory.
#pragma once

#include <vector>

#include "engine/cpu/place.h"
#include "ir/view.h"

namespace torch_xla::cpu {

class PlacedGraph {
 protected:
  // Adds a node with one result, in its own memory with these strides.
  ValueId append(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, const Type& type, Dims strides);
  // The same value stored in another order.
  ValueId copy_as(ValueId v, const Dims& strides);
  ValueId in_order(ValueId v, const Dims& strides);
  // v broadcast to these dims and stored for all readers, also if it is cheap to compute.
  ValueId stored(ValueId v, const Dims& dims);
  ValueId iota(const Dims& dims, int64_t dim, DType dtype);
  ValueId integer(int64_t number, DType dtype);
  ValueId combine(Prim prim, ValueId a, ValueId b); // both and the result have one dtype
  // Stores v if it is a scalar of the program: kernels get these in registers.
  ValueId in_memory(ValueId v);
  // A view of x's own memory, or of a copy in the order that the view assumes.
  ValueId add_view(const ViewGeometry& view, ValueId x);
  ValueId reshape(ValueId x, const Dims& dims);
  // The order of the first operand with the result's dims, so that images stay channels-last between convolutions. Broadcast operands have
  // none.
  Dims order_of_operands(const Dims& dims, const InlineVec<ValueId, 4>& operands) const;

  Graph graph_;
  std::vector<Place> places_; // by value of graph_
  int32_t location_ = -1; // of added nodes
};

} // namespace torch_xla::cpu
