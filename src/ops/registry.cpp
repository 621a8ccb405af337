// The map from names to rows.
#include "ops/registry.h"

#include <memory>
#include <mutex>
#include <unordered_map>

#include "core/errors.h"
#include "ir/graph.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

using OpMap = std::unordered_map<std::string_view, const Op*>;

void add_row(OpMap& map, const Op& op) {
  bool is_new = map.emplace(op.name, &op).second;
  XLA_ASSERT(is_new, "two rows have the name ", op.name);
}

OpMap* make_op_map() {
  auto* map = new OpMap();
  for (const Op* op : builtin_ops()) {
    add_row(*map, *op);
  }
  for (std::span<const Op> table : op_tables()) {
    for (const Op& op : table) {
      add_row(*map, op);
    }
  }
  return map;
}

} // namespace

const Op* find_op(std::string_view name) {
  static const OpMap* map = make_op_map();
  auto found = map->find(name);
  return found == map->end() ? nullptr : found->second;
}

const Op& library_form(const Op& op) {
  static auto* forms = new std::unordered_map<const Op*, std::unique_ptr<Op>>;
  static auto* mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<Op>& form = (*forms)[&op];
  if (!form) {
    form = std::make_unique<Op>(
        Op{.name = op.name,
           .kind = OpKind::kLibrary,
           .dtypes = kAllTypes,
           .reads = op.reads,
           .written = op.written,
           .traits = op.traits & (kOfCalls | kSameDtype | kNoBoolOperand)});
    if (op.kind != OpKind::kPointwise) { // whose order ATen's rule for types knows
      form->layout = op.layout;
      form->order_of = op.order_of;
    }
    if (op.traits & kDivides) {
      form->traits |= kChecksValues;
      form->rule = op.rule; // in StableHLO the body stands for the call, which checks nothing there
      form->body = op.body;
    }
  }
  return *form;
}

const Op& get_op(std::string_view name) {
  const Op* op = find_op(name);
  XLA_ASSERT(op, "no row for ", name);
  return *op;
}

} // namespace torch_xla
