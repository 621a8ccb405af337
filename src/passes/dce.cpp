// Dead code: drops nodes that no output needs and numbers the rest anew. Parameters and scalars keep their positions.
#include "passes/passes.h"

namespace torch_xla {
namespace {

class DeadCode {
 public:
  explicit DeadCode(Graph& graph) : graph_(graph), live_(find_live_nodes(graph)) {}

  void run() {
    Graph kept;
    renumbered_.assign(graph_.values.size(), kNoValue);
    keep_inputs(kept);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (live_[i]) {
        keep_node(kept, graph_.nodes[i]);
      }
    }
    for (ValueId v : graph_.outputs) {
      kept.outputs.push_back(renumbered_[v]);
    }
    graph_ = std::move(kept);
  }

 private:
  void keep_inputs(Graph& kept) {
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      ValueId v = graph_.parameters[i];
      renumbered_[v] = kept.add_parameter(graph_.type(v), graph_.parameter_strides[i]);
    }
    for (ValueId v : graph_.scalars) {
      renumbered_[v] = kept.add_scalar(graph_.type(v).dtype);
    }
  }
  void keep_node(Graph& kept, Node& node) {
    for (ValueId& v : node.operands) {
      v = v == kNoValue ? kNoValue : renumbered_[v];
    }
    std::vector<Type> results;
    for (int32_t i = 0; i < node.num_results; ++i) {
      results.push_back(graph_.type(node.result(i)));
    }
    ValueId first = kept.add_node(*node.op, std::move(node.operands), std::move(node.attrs), results, node.location);
    for (int32_t i = 0; i < node.num_results; ++i) {
      renumbered_[node.result(i)] = first + i;
    }
  }

  Graph& graph_;
  std::vector<bool> live_; // by node
  std::vector<ValueId> renumbered_; // by old value
};

} // namespace

void eliminate_dead_code(Graph& graph) {
  DeadCode(graph).run();
}

} // namespace torch_xla
