// Chooses the kernel of few_queries.h or of many_queries.h, and gives it ATen's tensors.
#include "engine/cpu/library/attention.h"

#include <algorithm>
#include <cmath>

#include "engine/cpu/cost.h"
#include "engine/cpu/few_rows/few_queries.h"
#include "engine/cpu/few_rows/many_queries.h"

namespace torch_xla::cpu {
namespace {

// Attributes of the row.
constexpr size_t kIsCausal = 1;
constexpr size_t kScale = 2;

// query, key and mask; null: no mask. A row's rule has checked the sizes.
bool fits(const Type& query, const Type* mask, const Attrs& attrs) {
  const bool is_narrow = query.dtype == DType::F32 || is_reduced_float(query.dtype);
  return can_attend() && is_narrow && query.dims[2] <= kMaxFewRows && !std::get<bool>(attrs[kIsCausal]) &&
      (!mask || mask->dtype == query.dtype);
}

Queries::Strides strides_of(const at::Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2)};
}

Queries queries_of(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs, const Attrs& attrs) {
  const at::Tensor& query = operands[0];
  const at::Tensor& key = operands[1];
  const at::Tensor& value = operands[2];
  const auto* scale = attrs.size() > kScale ? std::get_if<double>(&attrs[kScale]) : nullptr;
  Queries q{
      .dtype = static_cast<DType>(query.scalar_type()),
      .batch = query.size(0),
      .heads = query.size(1),
      .key_heads = key.size(1),
      .queries = query.size(2),
      .keys = key.size(2),
      .size = query.size(3),
      .scale = scale ? *scale : 1 / std::sqrt(static_cast<double>(query.size(3))),
      .query = query.const_data_ptr(),
      .key = key.const_data_ptr(),
      .value = value.const_data_ptr(),
      .query_strides = strides_of(query),
      .key_strides = strides_of(key),
      .value_strides = strides_of(value),
      .out = outs[0].data_ptr(),
      .logsumexp = outs[1].data_ptr<float>(),
      .out_strides = strides_of(outs[0]),
      .sum_strides = strides_of(outs[1])};
  q.is_causal = std::get<bool>(attrs[kIsCausal]);
  if (operands.size() > 3 && operands[3].defined()) {
    const at::Tensor mask = operands[3].expand({q.batch, q.heads, q.queries, q.keys});
    q.mask = mask.const_data_ptr();
    q.mask_strides = {mask.stride(0), mask.stride(1), mask.stride(2), mask.stride(3)};
  }
  return q;
}

} // namespace

bool has_few_queries(const CallSpec& call) {
  const bool masked = call.operands.size() > 3 && call.operands[3].type.dtype != DType::Undefined;
  return fits(call.operands[0].type, masked ? &call.operands[3].type : nullptr, call.attrs);
}

bool has_few_queries(const Graph& graph, const Node& call) {
  const bool masked = call.operands.size() > 3 && call.operands[3] != kNoValue;
  return fits(graph.type(call.operands[0]), masked ? &graph.type(call.operands[3]) : nullptr, call.attrs);
}

void attend_by_few(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs, const Attrs& attrs) {
  attend(queries_of(operands, outs, attrs));
}

bool has_many_queries(const CallSpec& call) {
  constexpr int64_t kLongestStride = int64_t{1} << 24; // its kernel has 32 bits for places of keys
  const Type& query = call.operands[0].type;
  const bool masked = call.operands.size() > 3 && call.operands[3].type.dtype != DType::Undefined;
  const bool has_rows = std::all_of(call.operands.begin(), call.operands.begin() + 3, [](const CallSpec::Tensor& t) {
    return t.strides.size() == 4 && t.strides[3] == 1 && t.strides[2] < kLongestStride;
  });
  return can_attend_by_blocks(query.dtype) && has_rows && query.dims[2] > kMaxFewRows && query.dims[3] % 2 == 0 &&
      (!masked || call.operands[3].type.dtype == query.dtype);
}

void attend_to_many(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs, const Attrs& attrs) {
  attend_by_blocks(queries_of(operands, outs, attrs));
}

Work work_of_few_queries(const CallSpec& call) {
  return 2 * call.operands[1].type.numel() / kNumbersPerThread;
}

} // namespace torch_xla::cpu
