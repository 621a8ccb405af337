// Which calls of 16-bit floats are computed in float32.
#include "engine/cpu/library/half_products.h"

#include <algorithm>

#include "engine/cpu/library/products.h"
#include "engine/cpu/library/substitutes.h"

namespace torch_xla::cpu {
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
  if (!has_products || std::none_of(call.operands.begin(), call.operands.end(), is_slow)) {
    return false;
  }
  const auto reads_halves = find_substitute(call.op->name).reads_halves;
  return !reads_halves || !reads_halves(graph, call);
}

} // namespace torch_xla::cpu
