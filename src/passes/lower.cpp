// Lowering: a trace of ATen rows becomes a graph of primitives, views and library calls.
#include "core/errors.h"
#include "ir/builder.h"
#include "ir/promote.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

using Operands = InlineVec<ValueId, 4>;

constexpr size_t kGrowth = 2; // about so many primitives stand for a row

// The type that a pointwise row computes in: that of its result, which the recorder found by the row's rule, but for Bools.
DType computed_type(const Graph& trace, const Node& node) {
  return gives_bool(node.op->rule) ? promote(trace, {node.operands.data(), node.operands.size()}) : trace.type(node.first_result).dtype;
}

class Lowering {
 public:
  Lowering(const Graph& trace, KeepLibrary keeps)
      : trace_(trace), keeps_(keeps), builder_(graph_), mapped_(trace.values.size(), kNoValue) {}

  Graph run() {
    graph_.reserve(kGrowth * trace_.nodes.size(), kGrowth * trace_.values.size());
    add_inputs();
    std::vector<bool> live = find_live_nodes(trace_);
    for (size_t i = 0; i < trace_.nodes.size(); ++i) {
      if (live[i]) {
        lower_node(trace_.nodes[i]);
      }
    }
    for (ValueId v : trace_.outputs) {
      graph_.outputs.push_back(get_mapped(v));
    }
    graph_.output_strides = trace_.output_strides;
    return std::move(graph_);
  }

 private:
  void add_inputs() {
    for (size_t i = 0; i < trace_.parameters.size(); ++i) {
      ValueId v = trace_.parameters[i];
      mapped_[v] = graph_.add_parameter(trace_.type(v), trace_.parameter_strides[i]);
    }
    for (ValueId v : trace_.scalars) {
      mapped_[v] = graph_.add_scalar(trace_.type(v).dtype);
    }
  }
  ValueId get_mapped(ValueId v) const {
    XLA_ASSERT(mapped_[v] != kNoValue, "%", v, " is used, but its row leaves it undefined");
    return mapped_[v];
  }
  Operands map_operands(const Node& node) const {
    Operands operands;
    for (ValueId v : node.operands) {
      operands.push_back(v == kNoValue ? kNoValue : get_mapped(v));
    }
    return operands;
  }
  void lower_node(const Node& node) {
    builder_.set_location(node.location);
    switch (node.op->kind) {
      case OpKind::kPointwise:
        return lower_pointwise(node);
      case OpKind::kComposite:
        return lower_composite(node);
      case OpKind::kLibrary:
        return lower_library(node);
      default:
        return copy(node);
    }
  }
  void lower_pointwise(const Node& node) {
    Operands operands = map_operands(node);
    const Type& result = trace_.type(node.first_result);
    BodyArgs args(builder_, node, {operands.data(), operands.size()}, computed_type(trace_, node), result);
    Ex value = node.op->body(args).to(result.dtype);
    mapped_[node.first_result] = builder_.broadcast(value.id(), result.dims);
  }
  void lower_library(const Node& node) {
    if (keeps_(*node.op)) {
      copy(node);
    } else if (node.op->body) { // what ATen's kernel alone refuses is told by no primitive
      lower_pointwise(node);
    } else {
      lower_composite(node);
    }
  }
  std::vector<Type> result_types(const Node& node) const {
    std::vector<Type> types;
    for (int32_t i = 0; i < node.num_results; ++i) {
      types.push_back(trace_.type(node.result(i)));
    }
    return types;
  }
  void lower_composite(const Node& node) {
    Operands operands = map_operands(node);
    std::vector<Type> types = result_types(node);
    ExpandContext context(builder_, {operands.data(), operands.size()}, node.attrs, types);
    XLA_CHECK_KIND(NotImplemented, node.op->expand, node.op->name, " is not supported by this engine");
    node.op->expand(context);
    for (int32_t i = 0; i < node.num_results; ++i) {
      mapped_[node.result(i)] = context.out()[i];
    }
  }
  void copy(const Node& node) {
    ValueId first = graph_.add_node(*node.op, map_operands(node), node.attrs, result_types(node), node.location);
    for (int32_t i = 0; i < node.num_results; ++i) {
      mapped_[node.result(i)] = first + i;
    }
  }

  const Graph& trace_;
  KeepLibrary keeps_;
  Graph graph_;
  Builder builder_;
  std::vector<ValueId> mapped_; // by value of the trace: the same value in the new graph
};

} // namespace

bool keep_all(const Op&) {
  return true;
}

Graph lower(const Graph& trace, KeepLibrary keeps) {
  return Lowering(trace, keeps).run();
}

} // namespace torch_xla
