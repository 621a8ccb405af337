// Attention: ATen's flash attention for the CPU, forward and backward, as one library call each.
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// Operands: query [B, H, T, E], key, value, mask. Results: output, logsumexp [B, H, T].
void infer_forward(InferContext& c) {
  for (size_t i = 0; i < 3; ++i) {
    require_rank(c, i, 4, "attention needs 4D query, key and value");
  }
  Type query = c.operand(0);
  c.add_result(query.dtype, query.dims);
  c.add_result(compute_type(query.dtype), {query.dims[0], query.dims[1], query.dims[2]});
}

// Operands: grad, query, key, value, output, logsumexp, mask.
void infer_backward(InferContext& c) {
  for (size_t i = 1; i < 4; ++i) {
    Type type = c.operand(i);
    c.add_result(type.dtype, type.dims);
  }
}

#define LIBRARY(NAME, INFER) {.name = "aten::" NAME, .kind = OpKind::kLibrary, .traits = kHeavy, .infer = INFER}

constexpr Op kRows[] = {
    LIBRARY("_scaled_dot_product_flash_attention_for_cpu", infer_forward),
    LIBRARY("_scaled_dot_product_flash_attention_for_cpu_backward", infer_backward),
};

} // namespace

std::span<const Op> attention_ops() {
  return kRows;
}

} // namespace torch_xla
