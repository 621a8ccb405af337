// Costs of values' expression trees, in one forward walk.
#include "engine/cpu/schedule/recompute.h"

#include <algorithm>

#include "engine/cpu/cost.h"

namespace torch_xla::cpu {
namespace {

bool is_iota(const Graph& graph, ValueId v) {
  const Node* node = graph.find_producer(v);
  return node && node->op->kind == OpKind::kPrim && node->op->prim == Prim::kIota;
}

} // namespace

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
    return {.free = graph.values[v].kind == ValueKind::kScalar, .loads = 1};
  }
  Prim prim = node->op->prim;
  // A reduction reads many elements for one; random bits cost more than any load.
  if (node->op->kind != OpKind::kPrim || prim == Prim::kRandomBits || is_reduce(prim)) {
    return {.loads = 1};
  }
  if (prim == Prim::kConstant || prim == Prim::kIota) {
    return {.free = true, .pointwise = true};
  }
  return make_pointwise(graph, *node);
}

Recompute::Item Recompute::make_pointwise(const Graph& graph, const Node& node) const {
  Item item{.free = true, .pointwise = true, .cost = kernel_cost(node.op->prim)};
  const Type& type = graph.type(node.result());
  const int64_t elements = type.numel();
  for (ValueId operand : node.operands) {
    const Item& from = items_[operand];
    // A number made from indices is no constant: it costs its operations for each element.
    item.free = item.free && from.free && !is_iota(graph, operand);
    // Small values are read from the first-level cache or computed outside the inner loop.
    const bool small = from.elements * kSmallShare <= elements;
    item.loads += from.free || small ? 0 : from.loads;
    item.cost += small ? 0 : from.cost;
  }
  // Each kernel that a long chain of such numbers is cut into would recompute all of it.
  item.free = item.free && (type.dims.empty() || item.cost <= kCheap);
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
