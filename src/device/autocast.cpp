// Automatic mixed precision: PyTorch's own op lists, registered for this device, and what the original has beside them.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "device/device.h"

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
// As the CPU's list has it beside the common ones.
#define XLA_FORALL_LOWER_PRECISION(_) _(mkldnn_rnn_layer)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

// Most have no kernel for 16-bit floats. PyTorch refuses binary_cross_entropy under autocast, as its input may have been rounded.
#define XLA_FORALL_FP32(_) \
  _(binary_cross_entropy)  \
  _(ctc_loss, IntList)     \
  _(ctc_loss, Tensor)      \
  _(cholesky)              \
  _(cholesky_inverse)      \
  _(cholesky_solve)        \
  _(inverse)               \
  _(linalg_inv_ex)         \
  _(linalg_svd)            \
  _(qr)                    \
  _(svd)                   \
  _(triangular_solve)

void add_kernels(torch::Library& m) {
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
  XLA_FORALL_LOWER_PRECISION(LOWER_PRECISION)
  AT_FORALL_FP32(FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(PROMOTE)
  XLA_FORALL_FP32(FP32)
}

} // namespace
} // namespace at::autocast

namespace torch_xla {

void register_autocast() {
  // Never destroyed, as the kernels of the device.
  static auto* others = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  static auto* kernels = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
  at::autocast::add_kernels(*kernels);
  at::autocast::set_autocast_dtype(kXlaType, at::kBFloat16);
}

} // namespace torch_xla
