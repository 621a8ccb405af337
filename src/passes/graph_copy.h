// For passes that build a new graph from an old one: copies inputs and nodes, and maps old values to new ones.
#pragma once

#include <array>
#include <vector>

#include "core/errors.h"
#include "ir/graph.h"
#include "ir/view.h"

namespace torch_xla {

class GraphCopy {
 protected:
  explicit GraphCopy(const Graph& from) : from_(from), mapped_(from.values.size(), kNoValue) {}

  void add_parameters() {
    for (size_t i = 0; i < from_.parameters.size(); ++i) {
      ValueId v = from_.parameters[i];
      mapped_[v] = graph_.add_parameter(from_.type(v), from_.parameter_strides[i], from_.parameter_shardings[i]);
    }
  }
  void add_inputs() {
    add_parameters();
    for (ValueId v : from_.scalars) {
      mapped_[v] = graph_.add_scalar(from_.type(v).dtype);
    }
    graph_.fixed_scalars = from_.fixed_scalars;
  }
  ValueId get_mapped(ValueId v) const {
    XLA_ASSERT(mapped_[v] != kNoValue, "%", v, " is used, but its row leaves it undefined");
    return mapped_[v];
  }
  // kNoValue stays.
  ValueId map_operand(ValueId v) const {
    return v == kNoValue ? kNoValue : get_mapped(v);
  }
  InlineVec<ValueId, 4> map_operands(const Node& node) const {
    InlineVec<ValueId, 4> operands;
    for (ValueId v : node.operands) {
      operands.push_back(map_operand(v));
    }
    return operands;
  }
  std::vector<Type> result_types(const Node& node) const {
    std::vector<Type> types;
    for (int32_t i = 0; i < node.num_results; ++i) {
      types.push_back(from_.type(node.result(i)));
    }
    return types;
  }
  void copy(const Node& node) {
    ValueId first = graph_.add_node(*node.op, map_operands(node), node.attrs, result_types(node), node.location);
    for (int32_t i = 0; i < node.num_results; ++i) {
      mapped_[node.result(i)] = first + i;
    }
  }
  // A view of the old graph, over a value of the new one.
  ValueId add_view(const Op& op, ViewGeometry view, ValueId base, int32_t location) {
    view.moved_by = map_operand(view.moved_by);
    const std::array<Type, 1> types{Type{graph_.type(base).dtype, view.dims}};
    return graph_.add_node(op, view_operands(view, base), view_attrs(view), types, location);
  }
  // The new graph; the last call.
  Graph take_graph() {
    for (ValueId v : from_.outputs) {
      graph_.outputs.push_back(get_mapped(v));
    }
    graph_.output_strides = from_.output_strides;
    return std::move(graph_);
  }

  const Graph& from_;
  Graph graph_;
  std::vector<ValueId> mapped_; // old value to new value
};

} // namespace torch_xla
