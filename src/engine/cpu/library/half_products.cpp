// Which calls of 16-bit floats are computed in float32.
#include "engine/cpu/library/half_products.h"

#include <algorithm>

#include "engine/cpu/cost.h"
#include "engine/cpu/library/few_rows.h"
#include "engine/cpu/library/products.h"

namespace torch_xla::cpu {
namespace {

bool is_matrix(const Type& type) {
  return type.dims.size() == 2;
}

// Whether has_few_rows() holds for any strides.
bool has_few_rows_in_any_order(const Graph& graph, const Node& call) {
  const size_t n = call.operands.size();
  if (!(call.op->traits & kSumsProducts) || n < 2 || n > 3 || !is_plain_sum(n, call.attrs) || !can_multiply_rows()) {
    return false;
  }
  const Type& a = graph.type(call.operands[n - 2]);
  const Type& b = graph.type(call.operands[n - 1]);
  return is_matrix(a) && is_matrix(b) && a.dims[0] <= kMaxFewRows && std::min(b.dims[0], b.dims[1]) >= kShortestPiece;
}

} // namespace

bool multiplies_bf16_fast() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool multiplies_slowly(DType dtype) {
#if defined(__x86_64__)
  return (dtype == DType::F16 && !__builtin_cpu_supports("avx512fp16")) || (dtype == DType::BF16 && !can_multiply_by_onednn());
#else
  return false;
#endif
}

bool widens_products(const Graph& graph, const Node& call) {
  auto is_slow = [&graph](ValueId v) { return v != kNoValue && multiplies_slowly(graph.type(v).dtype); };
  const bool has_products = call.op->kind == OpKind::kLibrary && (call.op->traits & (kSumsProducts | kHasProducts));
  return has_products && std::any_of(call.operands.begin(), call.operands.end(), is_slow) && !has_few_rows_in_any_order(graph, call);
}

} // namespace torch_xla::cpu
