// The rows of the primitives and of the views.
#include <array>

#include "core/errors.h"
#include "ir/graph.h"

namespace torch_xla {

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

} // namespace

const Op& prim_op(Prim prim) {
  XLA_ASSERT(!is_kernel_only(prim), "no node has the primitive ", prim_name(prim));
  return prim_rows()[static_cast<size_t>(prim)];
}

std::vector<const Op*> builtin_ops() {
  std::vector<const Op*> ops{&kViewOp, &kViewUpdateOp};
  for (const Op& op : prim_rows()) {
    if (!is_kernel_only(op.prim)) {
      ops.push_back(&op);
    }
  }
  return ops;
}

} // namespace torch_xla
