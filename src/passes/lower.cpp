// Lowering: a trace of ATen rows becomes a graph of primitives, views and library calls.
#include "core/errors.h"
#include "ir/builder.h"
#include "ir/promote.h"
#include "passes/graph_copy.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

using Operands = InlineVec<ValueId, 4>;

constexpr size_t kGrowth = 2; // about so many primitives stand for a row

// The type in which a pointwise row computes: its result's, found by the recorder from the row's rule, except for Bool.
DType computed_type(const Graph& trace, const Node& node) {
  return gives_bool(node.op->rule) ? promote(trace, {node.operands.data(), node.operands.size()}) : trace.type(node.first_result).dtype;
}

class Lowering : private GraphCopy {
 public:
  Lowering(const Graph& trace, KeepLibrary keeps) : GraphCopy(trace), keeps_(keeps), builder_(graph_) {}

  Graph run() {
    graph_.reserve(kGrowth * from_.nodes.size(), kGrowth * from_.values.size());
    add_inputs_but_fixed();
    std::vector<bool> live = find_live_nodes(from_);
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      if (live[i]) {
        lower_node(from_.nodes[i]);
      }
    }
    return take_graph();
  }

 private:
  // Fixed scalars become constants. Rows convert them to the type in which they compute.
  void add_inputs_but_fixed() {
    add_parameters();
    for (size_t i = 0; i < from_.scalars.size(); ++i) {
      ValueId v = from_.scalars[i];
      DType dtype = from_.type(v).dtype;
      std::optional<uint64_t> fixed = from_.fixed_scalar(i);
      mapped_[v] = fixed ? add_constant(dtype, number_attr(dtype, *fixed)) : graph_.add_scalar(dtype);
    }
  }
  ValueId add_constant(DType dtype, const Attr& value) {
    const auto* number = std::get_if<double>(&value);
    return number ? builder_.constant(*number, dtype) : builder_.constant_int(std::get<int64_t>(value), dtype);
  }
  void lower_node(const Node& node) {
    builder_.set_location(node.location);
    switch (node.op->kind) {
      case OpKind::kPointwise:
        return lower_pointwise(node);
      case OpKind::kComposite:
        return keeps_(*node.op) ? copy(node) : lower_composite(node);
      case OpKind::kLibrary:
        return lower_library(node);
      default:
        return copy(node);
    }
  }
  void lower_pointwise(const Node& node) {
    Operands operands = map_operands(node);
    const Type& result = from_.type(node.first_result);
    BodyArgs args(builder_, node, {operands.data(), operands.size()}, computed_type(from_, node), result);
    Ex value = node.op->body(args).to(result.dtype);
    mapped_[node.first_result] = builder_.broadcast(value.id(), result.dims);
  }
  void lower_library(const Node& node) {
    if (keeps_(*node.op) && !expands(node)) {
      copy(node);
    } else if (node.op->body) { // primitives cannot raise errors of ATen's kernel
      lower_pointwise(node);
    } else {
      lower_composite(node);
    }
  }
  bool expands(const Node& node) const {
    return node.op->expands && node.op->expands(InferContext(from_, {node.operands.data(), node.operands.size()}, node.attrs));
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

  KeepLibrary keeps_;
  Builder builder_;
};

} // namespace

bool keep_all(const Op& op) {
  return op.kind == OpKind::kLibrary;
}

Graph lower(const Graph& trace, KeepLibrary keeps) {
  return Lowering(trace, keeps).run();
}

} // namespace torch_xla
