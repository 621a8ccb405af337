// Rows by name: the primitives, the views, and the op tables.
#include <array>
#include <string_view>
#include <unordered_map>

#include "core/errors.h"
#include "ir/graph.h"

namespace torch_xla {

// Defined by ops/, which stands above this directory; its header is not included here.
std::span<const std::span<const Op>> op_tables();

constinit const Op kViewOp = {.name = "view", .kind = OpKind::kView};
constinit const Op kViewUpdateOp = {.name = "view_update", .kind = OpKind::kViewUpdate};

namespace {

constexpr size_t kNumPrims = static_cast<size_t>(Prim::kCount);
using PrimRows = std::array<Op, kNumPrims>;

PrimRows make_prim_rows() {
  PrimRows rows;
  for (size_t i = 0; i < kNumPrims; ++i) {
    auto prim = static_cast<Prim>(i);
    rows[i] = {.name = prim_name(prim), .kind = OpKind::kPrim, .prim = prim};
  }
  return rows;
}

const PrimRows& prim_rows() {
  static const PrimRows rows = make_prim_rows();
  return rows;
}

bool is_kernel_only(Prim p) {
  return p == Prim::kNone || p == Prim::kScalar || p == Prim::kLoad || p == Prim::kStore;
}

using OpMap = std::unordered_map<std::string_view, const Op*>;

void add_row(OpMap& map, const Op& op) {
  bool is_new = map.emplace(op.name, &op).second;
  XLA_ASSERT(is_new, "two rows have the name ", op.name);
}

OpMap* make_op_map() {
  auto* map = new OpMap();
  for (const Op& op : prim_rows()) {
    if (!is_kernel_only(op.prim)) {
      add_row(*map, op);
    }
  }
  add_row(*map, kViewOp);
  add_row(*map, kViewUpdateOp);
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

const Op& prim_op(Prim prim) {
  XLA_ASSERT(!is_kernel_only(prim), "no node has the primitive ", prim_name(prim));
  return prim_rows()[static_cast<size_t>(prim)];
}

} // namespace torch_xla
