// Costs of values' expression trees, in one forward walk.
#include "engine/cpu/schedule/recompute.h"

#include <algorithm>

#include "engine/cpu/cost.h"

namespace torch_xla::cpu {

Recompute::Recompute(const Graph& graph) {
  items_.reserve(graph.values.size());
  for (ValueId v = 0; v < static_cast<ValueId>(graph.values.size()); ++v) {
    items_.push_back(make_item(graph, v));
    items_.back().elements = graph.type(v).numel();
  }
}

Recompute::Item Recompute::make_item(const Graph& graph, ValueId v) const {
  const Node* node = graph.find_producer(v);
  if (!node) {
    const bool scalar = graph.values[v].kind == ValueKind::kScalar;
    return {.free = scalar, .uniform = scalar, .loads = 1};
  }
  Prim prim = node->op->prim;
  // A reduction reads many elements for one; random bits cost more than any load.
  if (node->op->kind != OpKind::kPrim || prim == Prim::kRandomBits || is_reduce(prim)) {
    return {.loads = 1};
  }
  if (prim == Prim::kConstant || prim == Prim::kIota) {
    return {.free = true, .uniform = prim == Prim::kConstant, .pointwise = true};
  }
  return make_pointwise(graph, *node);
}

Recompute::Item Recompute::make_pointwise(const Graph& graph, const Node& node) const {
  Item item{.uniform = true, .pointwise = true, .cost = kernel_cost(node.op->prim)};
  const int64_t elements = graph.type(node.result()).numel();
  for (ValueId operand : node.operands) {
    const Item& from = items_[operand];
    item.uniform = item.uniform && from.uniform;
    // What is small is read from the first-level cache or computed outside the inner loop.
    const bool small = from.elements * kSmallShare <= elements;
    item.loads += from.free || small ? 0 : from.loads;
    item.cost += small ? 0 : from.cost;
  }
  item.free = item.uniform;
  item.cost = std::min(item.cost, kManyOperations);
  item.loads = std::min(item.loads, kManyOperations);
  return item;
}

// A small value may take more, as the kernel computes it for few of its elements.
bool Recompute::is_cheap_in(ValueId v, int64_t elements, bool in_vectors) const {
  const Item& item = items_[v];
  if (item.free || !item.pointwise) {
    return item.free;
  }
  const bool takes_long = in_vectors && item.cost * elements > kManyRepeated;
  bool small = item.elements * kSmallShare <= elements && !takes_long;
  return item.cost <= (small ? kCheapForSmall : kCheap) && item.loads <= (small ? kSmallLoads : kCheapLoads);
}

} // namespace torch_xla::cpu
