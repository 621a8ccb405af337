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
  _(avg_pool3d)            \
  _(binary_cross_entropy)  \
  _(ctc_loss, IntList)     \
  _(ctc_loss, Tensor)      \
  _(nanquantile)           \
  _(nanquantile, scalar)   \
  _(polar)                 \
  _(quantile)              \
  _(quantile, scalar)      \
  _(view_as_complex)

#define XLA_FORALL_FP32_FFT(_) \
  _(fft_fft)                   \
  _(fft_fft2)                  \
  _(fft_fftn)                  \
  _(fft_hfft)                  \
  _(fft_ifft)                  \
  _(fft_ifft2)                 \
  _(fft_ifftn)                 \
  _(fft_ihfft)                 \
  _(fft_irfft)                 \
  _(fft_irfft2)                \
  _(fft_irfftn)                \
  _(fft_rfft)                  \
  _(fft_rfft2)                 \
  _(fft_rfftn)

#define XLA_FORALL_FP32_LINALG(_)         \
  _(cholesky)                             \
  _(cholesky_inverse)                     \
  _(cholesky_solve)                       \
  _(geqrf)                                \
  _(inverse)                              \
  _(linalg_cholesky)                      \
  _(linalg_cholesky_ex)                   \
  _(linalg_cond)                          \
  _(linalg_cond, p_str)                   \
  _(linalg_eig)                           \
  _(linalg_eigh)                          \
  _(linalg_eigvals)                       \
  _(linalg_eigvalsh)                      \
  _(linalg_householder_product)           \
  _(linalg_inv_ex)                        \
  _(linalg_lstsq)                         \
  _(linalg_matrix_rank)                   \
  _(linalg_matrix_rank, tol_tensor)       \
  _(linalg_matrix_rank, atol_rtol_float)  \
  _(linalg_matrix_rank, atol_rtol_tensor) \
  _(linalg_qr)                            \
  _(linalg_solve)                         \
  _(linalg_svd)                           \
  _(linalg_svdvals)                       \
  _(orgqr)                                \
  _(ormqr)                                \
  _(qr)                                   \
  _(svd)                                  \
  _(triangular_solve)

void add_kernels(torch::Library& m) {
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
  XLA_FORALL_LOWER_PRECISION(LOWER_PRECISION)
  AT_FORALL_FP32(FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(PROMOTE)
  XLA_FORALL_FP32(FP32)
  XLA_FORALL_FP32_FFT(FP32)
  XLA_FORALL_FP32_LINALG(FP32)
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
