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

void expand_log_softmax_backward(ExpandContext& c) {
  Ex g = c.computed(0);
  c.set(0, g - exp(c.computed(1)) * reduce_sum(g, softmax_dims(c)));
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
