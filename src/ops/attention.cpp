// Scaled dot product attention: calls of ATen's flash attention for the CPU.
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// Operands query, key, value, then the mask: [B, H, Tq, E], [B, H, Tk, E], [B, H, Tk, Ev].
void check_attention(const InferContext& c) {
  for (size_t i = 0; i < 3; ++i) {
    if (c.operand(i).dims.size() != 4 || !is_float(c.operand(i).dtype)) {
      fall_back("attention of this input");
    }
  }
  same_dtype(c, 0, 1);
  same_dtype(c, 0, 2);
}

// Results output and logsumexp; the caller gives logsumexp the strides [Tq * H, 1, H].
void infer_flash(InferContext& c) {
  check_attention(c);
  Dims q = c.operand(0).dims;
  c.add_result(c.operand(0).dtype, {q[0], q[1], q[2], c.operand(2).dims[3]});
  c.add_result(c.operand(0).dtype == DType::F64 ? DType::F64 : DType::F32, {q[0], q[1], q[2]});
}

// Operands gradient, query, key, value, ...
void infer_flash_backward(InferContext& c) {
  like_operand<1>(c);
  like_operand<2>(c);
  like_operand<3>(c);
}

#define ROW(NAME, INFER) {.name = "aten::" NAME, .kind = OpKind::kLibrary, .infer = INFER}

constinit const Op kRows[] = {
    ROW("_scaled_dot_product_flash_attention_for_cpu", infer_flash),
    ROW("_scaled_dot_product_flash_attention_for_cpu_backward", infer_flash_backward),
};

} // namespace

std::span<const Op> attention_ops() {
  return kRows;
}

} // namespace torch_xla
