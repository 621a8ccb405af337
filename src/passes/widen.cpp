// Calls of 16-bit floats that the engine computes in float32, as it has no fast kernel for them: docs/decisions/products.md.
#include "ir/builder.h"
#include "passes/graph_copy.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

class Widening : private GraphCopy {
 public:
  Widening(const Graph& graph, WidenCall widens) : GraphCopy(graph), widens_(widens), builder_(graph_) {}

  Graph run() {
    add_inputs();
    for (const Node& node : from_.nodes) {
      widens_(from_, node) ? widen(node) : copy(node);
    }
    return take_graph();
  }

 private:
  void widen(const Node& call) {
    builder_.set_location(call.location);
    InlineVec<ValueId, 4> operands = map_operands(call);
    for (ValueId& v : operands) {
      if (v != kNoValue) {
        v = builder_.convert(v, compute_type(graph_.type(v).dtype));
      }
    }
    std::vector<Type> types = result_types(call);
    for (Type& type : types) {
      type.dtype = compute_type(type.dtype);
    }
    const ValueId first = builder_.library(*call.op, {operands.data(), operands.size()}, call.attrs, types);
    for (int32_t i = 0; i < call.num_results; ++i) {
      mapped_[call.result(i)] = builder_.convert(first + i, from_.type(call.result(i)).dtype);
    }
  }

  WidenCall widens_;
  Builder builder_;
};

} // namespace

Graph widen(const Graph& graph, WidenCall widens) {
  return Widening(graph, widens).run();
}

} // namespace torch_xla
