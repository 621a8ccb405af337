// Automatic mixed precision: PyTorch's own op lists, registered for this device.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "core/errors.h"

// The lists of the header are macros that name functions of these namespaces.
using at::IntArrayRef; // NOLINT(misc-unused-using-decls)
using at::Scalar; // NOLINT(misc-unused-using-decls)
using at::ScalarType; // NOLINT(misc-unused-using-decls)
using at::Tensor; // NOLINT(misc-unused-using-decls)

namespace at::autocast {
namespace {

#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

// float16 overflows in it; PyTorch refuses it on its own devices too.
Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  XLA_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast; use "
      "binary_cross_entropy_with_logits or BCEWithLogitsLoss, which are safe, or call it within autocast(enabled=False)");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
  AT_FORALL_FP32(FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

} // namespace
} // namespace at::autocast
