// Values stored in narrower types than tensors report, for XLA_USE_BF16 and XLA_DOWNCAST_BF16: docs/decisions/values.md.
#include "ops/registry.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

class Narrowing {
 public:
  Narrowing(const Graph& trace, FloatStorage storage, bool narrow_products)
      : trace_(trace),
        storage_(storage),
        narrow_products_(narrow_products),
        stored_(trace.values.size(), kNoValue),
        full_(trace.values.size(), kNoValue) {}

  Graph run() {
    for (size_t i = 0; i < trace_.parameters.size(); ++i) {
      ValueId v = trace_.parameters[i];
      stored_[v] = graph_.add_parameter(stored_type_of(v), trace_.parameter_strides[i], trace_.parameter_shardings[i]);
    }
    for (ValueId v : trace_.scalars) {
      stored_[v] = full_[v] = graph_.add_scalar(trace_.type(v).dtype);
    }
    graph_.fixed_scalars = trace_.fixed_scalars;
    for (const Node& node : trace_.nodes) {
      computes_on_stored(*node.op) ? copy(node) : widen(node);
    }
    for (ValueId v : trace_.outputs) {
      graph_.outputs.push_back(stored_[v]);
    }
    graph_.output_strides = trace_.output_strides;
    return std::move(graph_);
  }

 private:
  // Whether results on the stored types equal the rounded results on the reported types. Draws use the stored type, as numbers below a
  // bound would round up to the bound.
  bool computes_on_stored(const Op& op) const {
    bool moves = op.kind == OpKind::kView || op.kind == OpKind::kViewUpdate || (op.traits & kMovesElements);
    bool draws = op.kind == OpKind::kComposite && (op.traits & kRandom);
    return moves || draws || (narrow_products_ && (op.traits & kSumsProducts));
  }
  Type stored_type_of(ValueId v) const {
    return {stored_type(trace_.type(v).dtype, storage_), trace_.type(v).dims};
  }
  ValueId convert(ValueId v, const Type& type, int32_t location) {
    static const Op& op = get_op("xla::convert");
    if (graph_.type(v) == type) {
      return v;
    }
    return graph_.add_node(op, {v}, {static_cast<int64_t>(type.dtype)}, std::span(&type, 1), location);
  }
  ValueId get_full(ValueId v, int32_t location) {
    if (full_[v] == kNoValue) {
      full_[v] = convert(stored_[v], trace_.type(v), location);
    }
    return full_[v];
  }
  void copy(const Node& node) {
    InlineVec<ValueId, 4> operands;
    for (ValueId v : node.operands) {
      operands.push_back(v == kNoValue ? kNoValue : stored_[v]);
    }
    std::vector<Type> types;
    for (int32_t i = 0; i < node.num_results; ++i) {
      types.push_back(stored_type_of(node.result(i)));
    }
    ValueId first = graph_.add_node(*node.op, std::move(operands), node.attrs, types, node.location);
    for (int32_t i = 0; i < node.num_results; ++i) {
      stored_[node.result(i)] = first + i;
    }
  }
  void widen(const Node& node) {
    InlineVec<ValueId, 4> operands;
    for (ValueId v : node.operands) {
      operands.push_back(v == kNoValue ? kNoValue : get_full(v, node.location));
    }
    std::vector<Type> types;
    for (int32_t i = 0; i < node.num_results; ++i) {
      types.push_back(trace_.type(node.result(i)));
    }
    ValueId first = graph_.add_node(*node.op, std::move(operands), node.attrs, types, node.location);
    for (int32_t i = 0; i < node.num_results; ++i) {
      stored_[node.result(i)] = convert(first + i, stored_type_of(node.result(i)), node.location);
    }
  }

  const Graph& trace_;
  const FloatStorage storage_;
  const bool narrow_products_;
  Graph graph_;
  // By value of the trace: the same value in the new graph, in its stored and in its reported type.
  std::vector<ValueId> stored_;
  std::vector<ValueId> full_;
};

} // namespace

Graph narrow(const Graph& trace, FloatStorage storage, bool narrow_products) {
  return Narrowing(trace, storage, narrow_products).run();
}

} // namespace torch_xla
