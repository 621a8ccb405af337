// Fake quantization, which training with quantization in mind uses, and products with weights packed into 8 and 4 bits. Calls of ATen's
// kernels.
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// The rounded values and which of them were in range.
void infer_rounded(InferContext& c) {
  like_float_operand<0>(c);
  c.add_result(DType::Bool, c.operand(0).dims);
}

#define FAKE_QUANTIZE(NAME, INFER, ...) \
  LIBRARY(NAME, INFER, .layout = ResultLayout::kOfOperand, .dtypes = kFloats __VA_OPT__(, ) __VA_ARGS__)

constinit const Op kRows[] = {
    FAKE_QUANTIZE("fake_quantize_per_tensor_affine_cachemask", infer_rounded),
    FAKE_QUANTIZE("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", infer_rounded),
    FAKE_QUANTIZE("fake_quantize_per_channel_affine_cachemask", infer_rounded, .traits = kChecksValues),
    FAKE_QUANTIZE("_fake_quantize_learnable_per_tensor_affine", like_float_operand<0>),
    FAKE_QUANTIZE("_fake_quantize_learnable_per_channel_affine", like_float_operand<0>, .traits = kChecksValues),
    CALL("_weight_int8pack_mm", kAllFloats, .reads = kDenseOperands),
    CALL("_weight_int4pack_mm_for_cpu", kAllFloats, .reads = kDenseOperands),
    CALL("_convert_weight_to_int4pack_for_cpu", kIntegers, .reads = kDenseOperands),
    CALL("_dyn_quant_matmul_4bit", kFloats, .reads = kDenseOperands),
    CALL("_dyn_quant_pack_4bit_weight", kIntegers, .reads = kDenseOperands),
};

} // namespace

std::span<const Op> quantize_ops() {
  return kRows;
}

} // namespace torch_xla
