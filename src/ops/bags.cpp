// Groups of rows: bags of embeddings, reductions of segments, repeats. Calls of ATen's kernels.
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// Operands weight, indices, offsets, per_sample_weights; attributes scale_grad_by_freq, mode, sparse, include_last_offset, padding_idx.
// ATen's kernel has a fast path for sums, which leaves out results that the backward pass otherwise needs.
template <bool Trained>
void infer_embedding_bag(InferContext& c) {
  Type weight = c.operand(0);
  Type indices = c.operand(1);
  Type offsets = c.operand(2);
  constexpr int64_t kSum = 0;
  constexpr int64_t kMax = 2;
  int64_t mode = c.get_int(1);
  bool right = is_float(weight.dtype) && weight.dims.size() == 2 && indices.dims.size() == 1 && offsets.dims.size() == 1 &&
      indices.dtype == offsets.dtype && offsets.numel() > 0 && mode >= kSum && mode <= kMax;
  if (!right || (c.has(3) && (mode != kSum || c.operand(3).dims != indices.dims || c.operand(3).dtype != weight.dtype))) {
    fall_back("bags of these operands");
  }
  int64_t bags = offsets.numel() - (c.get_bool(3) ? 1 : 0);
  bool fast = mode == kSum && weight.dtype != DType::F64 && c.get_int(4, -1) < 0;
  int64_t sizes = Trained || mode != kSum ? bags : offsets.numel();
  c.add_result(weight.dtype, {bags, weight.dims[1]});
  c.add_result(indices.dtype, {fast ? 0 : indices.numel()});
  c.add_result(indices.dtype, {sizes});
  c.add_result(indices.dtype, mode == kMax ? Dims{bags, weight.dims[1]} : Dims{sizes});
}

// Repeats each index by its count; the length of the result depends on data unless the call gives it.
void infer_repeats(InferContext& c) {
  Type repeats = c.operand(0);
  int64_t size = c.get_int(0, -1);
  bool counts = repeats.dims.size() == 1 && (repeats.dtype == DType::I32 || repeats.dtype == DType::I64);
  if (size < 0 || !counts) {
    fall_back("the size of the result depends on data");
  }
  c.add_result(repeats.dtype, {size});
}

constinit const Op kRows[] = {
    CALL("embedding_renorm_", kAllFloats, .traits = kChecksValues),
    SHAPED_CALL("_embedding_bag", infer_embedding_bag<true>, kAllFloats, .reads = kDenseRows, .traits = kChecksValues),
    SHAPED_CALL("_embedding_bag_forward_only", infer_embedding_bag<false>, kAllFloats, .reads = kDenseRows, .traits = kChecksValues),
    CALL("_embedding_bag_dense_backward", kFloats, .traits = kChecksValues),
    CALL("_embedding_bag_per_sample_weights_backward", kFloats, .traits = kChecksValues),
    SHAPED_CALL("repeat_interleave.Tensor", infer_repeats, kIntegers, .traits = kChecksValues),
    CALL("segment_reduce", kAllFloats, .traits = kChecksValues),
    CALL("_segment_reduce_backward", kAllFloats, .traits = kChecksValues),
    CALL("_convert_indices_from_coo_to_csr", kIntegers),
    CALL("_convert_indices_from_csr_to_coo", kIntegers),
};

} // namespace

std::span<const Op> bag_ops() {
  return kRows;
}

} // namespace torch_xla
