// Costs of values' expression trees, in one forward walk.
#include "engine/cpu/recompute.h"

#include <algorithm>

namespace torch_xla::cpu {
namespace {

constexpr int kCheap = 2;
constexpr int kCheapForSmall = 24; // small values are computed outside the inner loop, or for few elements
constexpr int kNever = 1000;

bool is_transcendental(Prim prim) {
  return (prim >= Prim::kExp && prim <= Prim::kLog1p) || (prim >= Prim::kSin && prim <= Prim::kLogistic) || prim == Prim::kPow ||
      prim == Prim::kAtan2;
}

} // namespace

int Recompute::op_cost(Prim prim) {
  if (prim == Prim::kRandomBits || is_reduce(prim)) {
    return kNever;
  }
  if (is_transcendental(prim)) {
    return 8;
  }
  return prim == Prim::kDiv || prim == Prim::kRem || prim == Prim::kSqrt || prim == Prim::kRsqrt ? 4 : 1;
}

Recompute::Recompute(const Graph& graph) : graph_(graph) {
  items_.reserve(graph.values.size());
  for (ValueId v = 0; v < static_cast<ValueId>(graph.values.size()); ++v) {
    items_.push_back(make_item(v));
  }
}

Recompute::Item Recompute::make_item(ValueId v) const {
  const Node* node = graph_.find_producer(v);
  if (!node) {
    return {graph_.values[v].kind == ValueKind::kScalar, false, 0, 1};
  }
  Prim prim = node->op->prim;
  if (node->op->kind != OpKind::kPrim || prim == Prim::kRandomBits || is_reduce(prim)) {
    return {false, false, 0, 1};
  }
  if (prim == Prim::kConstant || prim == Prim::kIota) {
    return {true, true, 0, 0};
  }
  Item item{true, true, op_cost(prim), 0};
  for (ValueId operand : node->operands) {
    const Item& from = items_[operand];
    // A number made from indices is no constant: it costs its operations for each element.
    item.free = item.free && from.free && graph_.type(operand).dims.empty();
    if (!from.free) {
      item.loads += from.loads;
    }
    item.cost += from.cost;
  }
  item.free = item.free && graph_.type(v).dims.empty();
  item.cost = std::min(item.cost, kNever);
  item.loads = std::min(item.loads, kNever);
  return item;
}

bool Recompute::is_cheap_in(ValueId v, int64_t elements) const {
  const Item& item = items_[v];
  if (item.free) {
    return true;
  }
  if (!item.pointwise) {
    return false;
  }
  bool small = graph_.type(v).numel() * 4 <= elements;
  return small ? item.cost <= kCheapForSmall && item.loads <= 6 : item.cost <= kCheap && item.loads <= 1;
}

} // namespace torch_xla::cpu
