// Dead code: drops nodes that no output needs. Values and nodes keep their order and get new numbers; all inputs stay.
#include <algorithm>

#include "passes/passes.h"

namespace torch_xla {
namespace {

template <typename T>
void move_down(std::vector<T>& list, size_t from, size_t to) {
  if (from != to) {
    list[to] = std::move(list[from]);
  }
}

// Whether the value belongs to an input, or to a node that stays.
bool is_kept(const Value& value, const std::vector<bool>& live) {
  return value.kind != ValueKind::kResult || live[value.index];
}

} // namespace

void eliminate_dead_code(Graph& graph) {
  const std::vector<bool> live = find_live_nodes(graph);
  std::vector<ValueId> renumbered(graph.values.size(), kNoValue);
  std::vector<int32_t> node_numbers(graph.nodes.size());
  auto renumber = [&](ValueId& v) { v = v == kNoValue ? kNoValue : renumbered[v]; };
  int32_t num_nodes = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    node_numbers[i] = num_nodes;
    num_nodes += live[i];
  }
  ValueId num_values = 0;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    Value& value = graph.values[v];
    if (is_kept(value, live)) {
      value.index = value.kind == ValueKind::kResult ? node_numbers[value.index] : value.index;
      renumbered[v] = num_values;
      move_down(graph.values, v, static_cast<size_t>(num_values++));
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (live[i]) {
      Node& node = graph.nodes[i];
      std::for_each(node.operands.begin(), node.operands.end(), renumber);
      renumber(node.first_result);
      move_down(graph.nodes, i, static_cast<size_t>(node_numbers[i]));
    }
  }
  graph.values.resize(num_values);
  graph.nodes.resize(num_nodes);
  for (std::vector<ValueId>* list : {&graph.parameters, &graph.scalars, &graph.outputs}) {
    std::for_each(list->begin(), list->end(), renumber);
  }
}

} // namespace torch_xla
