// MKL gives processors of other makers than Intel its slower kernels (docs/decisions/0008).
#include "engine/cpu/library_matmul.h"

#include <ATen/Context.h>

#include <string_view>

namespace at::native {
// In libtorch_cpu, but in no header that torch installs: result = beta * result + alpha * a b.
TORCH_API void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);
} // namespace at::native

namespace torch_xla::cpu {
namespace {

// Multiplications below which a call of oneDNN costs more than it saves: about 50 us.
constexpr int64_t kMinProducts = int64_t{1} << 22;

bool is_foreign_processor() {
#if defined(__x86_64__)
  static const bool foreign = !__builtin_cpu_is("intel");
  return foreign;
#else
  return false; // no MKL
#endif
}

bool is_one(const Attr& attr) {
  const auto* integer = std::get_if<int64_t>(&attr);
  const auto* number = std::get_if<double>(&attr);
  return (integer && *integer == 1) || (number && *number == 1);
}

} // namespace

bool prefers_onednn(const Graph& graph, const Node& node) {
  std::string_view name = node.op->name;
  bool sums = name == "aten::addmm";
  if (!is_foreign_processor() || !at::globalContext().userEnabledMkldnn() || (name != "aten::mm" && !sums)) {
    return false;
  }
  if (sums && !(node.attrs.size() == 2 && is_one(node.attrs[0]) && is_one(node.attrs[1]))) {
    return false;
  }
  const Type& a = graph.type(node.operands[sums ? 1 : 0]);
  const Type& b = graph.type(node.operands[sums ? 2 : 1]);
  return a.dtype == DType::F32 && a.dims[0] * a.dims[1] * b.dims[1] >= kMinProducts;
}

void multiply_by_onednn(const std::vector<at::Tensor>& operands, const at::Tensor& out) {
  bool sums = operands.size() == 3;
  if (sums) {
    out.copy_(operands[0].expand_as(out));
  }
  at::native::mkldnn_matmul(operands[operands.size() - 2], operands.back(), out, sums ? 1 : 0, 1);
}

} // namespace torch_xla::cpu
