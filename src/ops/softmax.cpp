// Softmax and its logarithm, forward and backward, in float32 for the 16-bit types.
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

void infer_softmax(InferContext& c) {
  like_float_operand<0>(c);
  wrap_dim(c.get_int(0), c.operand(0).dims.size());
  if (c.get_bool(1)) {
    fall_back("softmax with half to float conversion");
  }
}

Dims softmax_dims(ExpandContext& c) {
  size_t rank = c.operand(0).dims.size();
  return rank ? Dims{wrap_dim(c.get_int(0), rank)} : Dims();
}

void expand_softmax(ExpandContext& c) {
  Ex x = c.computed(0);
  Dims over = softmax_dims(c);
  Ex e = exp(x - reduce_max(x, over));
  c.set(0, e / reduce_sum(e, over));
}

void expand_log_softmax(ExpandContext& c) {
  Ex x = c.computed(0);
  Dims over = softmax_dims(c);
  Ex shifted = x - reduce_max(x, over);
  c.set(0, shifted - log(reduce_sum(exp(shifted), over)));
}

// Operands gradient, output; attributes dim, input dtype.
void infer_softmax_backward(InferContext& c) {
  require_float(c, 0);
  if (!(c.operand(0) == c.operand(1))) {
    fall_back("a gradient that does not fit the output of softmax");
  }
  wrap_dim(c.get_int(0), c.operand(0).dims.size());
  c.add_result(get_dtype(c, 1, c.operand(0).dtype), c.operand(0).dims);
}

void expand_softmax_backward(ExpandContext& c) {
  Ex g = c.computed(0);
  Ex y = c.computed(1);
  c.set(0, y * (g - reduce_sum(g * y, softmax_dims(c))));
}

const Node* find_prim(Ex x, Prim prim) {
  const Node* node = x.b().graph().find_producer(x.id());
  return node && node->op->kind == OpKind::kPrim && node->op->prim == prim ? node : nullptr;
}

// The sum over the classes of a gradient that is zero but for the target's class, as nll_loss_backward writes it: that class's gradient, at
// once, rounded as the gradient is. Else nothing.
std::optional<Ex> find_only_gradient(Ex g, const Dims& over) {
  if (const Node* rounded = find_prim(g, Prim::kConvert)) {
    std::optional<Ex> only = find_only_gradient(Ex(&g.b(), rounded->operands[0]), over);
    return only ? std::optional(only->to(g.dtype())) : std::nullopt;
  }
  auto of = [&](const Node* node, size_t i) { return Ex(&g.b(), node->operands[i]); };
  auto is_beside = [&](Ex x) { // the same for all classes
    const Dims& dims = x.type().dims;
    return dims.empty() || (dims.size() == g.type().dims.size() && dims[over[0]] == 1);
  };
  const Node* choice = find_prim(g, Prim::kSelect);
  const Node* zero = choice ? find_prim(of(choice, 2), Prim::kConstant) : nullptr;
  const Node* both = choice ? find_prim(of(choice, 0), Prim::kAnd) : nullptr;
  const Node* same = both ? find_prim(of(both, 0), Prim::kEq) : nullptr;
  const Node* index = same ? find_prim(of(same, 0), Prim::kIota) : nullptr;
  if (!index || !zero || over.empty() || std::get<int64_t>(index->attrs[0]) != over[0] || attr_double(zero->attrs[0], 1) != 0) {
    return std::nullopt;
  }
  Ex target = of(same, 1);
  Ex counts = of(both, 1);
  Ex value = of(choice, 1);
  if (!is_beside(target) || !is_beside(counts) || !is_beside(value)) {
    return std::nullopt;
  }
  Ex classes(&g.b(), g.b().constant_int(g.type().dims[over[0]], target.dtype()));
  return select((target >= 0.0) & (target < classes) & counts, value, 0.0);
}

void expand_log_softmax_backward(ExpandContext& c) {
  Ex g = c.computed(0);
  Dims over = softmax_dims(c);
  std::optional<Ex> only = find_only_gradient(g, over);
  c.set(0, g - exp(c.computed(1)) * (only ? *only : reduce_sum(g, over)));
}

constinit const Op kRows[] = {
    COMPOSITE("_softmax", infer_softmax, expand_softmax),
    COMPOSITE("_log_softmax", infer_softmax, expand_log_softmax),
    COMPOSITE("_softmax_backward_data", infer_softmax_backward, expand_softmax_backward),
    COMPOSITE("_log_softmax_backward_data", infer_softmax_backward, expand_log_softmax_backward),
};

} // namespace

std::span<const Op> softmax_ops() {
  return kRows;
}

} // namespace torch_xla
