// Automatic mixed precision: PyTorch's own op lists, registered for this device, and the original's additions.
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
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

void add_pytorchs(torch::Library& m) {
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
  AT_FORALL_FP32(FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(PROMOTE)
}

} // namespace
} // namespace at::autocast

namespace torch_xla {
namespace {

// From the CPU's list, besides the common ones.
constexpr const char* kLowerPrecision[] = {"mkldnn_rnn_layer"};

// Most have no kernel for 16-bit floats. PyTorch refuses binary_cross_entropy under autocast, as its input may have been rounded.
constexpr const char* kFloat32[] = {
    "avg_pool3d",
    "binary_cross_entropy",
    "ctc_loss.IntList",
    "ctc_loss.Tensor",
    "nanquantile",
    "nanquantile.scalar",
    "polar",
    "quantile",
    "quantile.scalar",
    "view_as_complex",
};

constexpr const char* kFloat32Transforms[] = {
    "fft_fft",
    "fft_fft2",
    "fft_fftn",
    "fft_hfft",
    "fft_ifft",
    "fft_ifft2",
    "fft_ifftn",
    "fft_ihfft",
    "fft_irfft",
    "fft_irfft2",
    "fft_irfftn",
    "fft_rfft",
    "fft_rfft2",
    "fft_rfftn",
};

constexpr const char* kFloat32Matrices[] = {
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "geqrf",
    "inverse",
    "linalg_cholesky",
    "linalg_cholesky_ex",
    "linalg_cond",
    "linalg_cond.p_str",
    "linalg_eig",
    "linalg_eigh",
    "linalg_eigvals",
    "linalg_eigvalsh",
    "linalg_householder_product",
    "linalg_inv_ex",
    "linalg_lstsq",
    "linalg_matrix_rank",
    "linalg_matrix_rank.tol_tensor",
    "linalg_matrix_rank.atol_rtol_float",
    "linalg_matrix_rank.atol_rtol_tensor",
    "linalg_qr",
    "linalg_solve",
    "linalg_svd",
    "linalg_svdvals",
    "orgqr",
    "ormqr",
    "qr",
    "svd",
    "triangular_solve",
};

// Calls the operator with its floating-point tensors cast, as the kernels behind PyTorch's lists; by name, as some releases lack some of
// them.
class Cast final : public c10::OperatorKernel {
 public:
  explicit Cast(bool lower) : lower_(lower) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::AutocastPrivateUse1);
    const at::ScalarType dtype = lower_ ? at::autocast::get_autocast_dtype(kXlaType) : at::kFloat;
    for (auto argument = stack->end() - static_cast<ptrdiff_t>(op.schema().arguments().size()); argument != stack->end(); ++argument) {
      if (argument->isTensor()) {
        *argument = at::autocast::cached_cast(dtype, argument->toTensor(), kXlaType);
      }
    }
    op.callBoxed(stack);
  }

 private:
  const bool lower_;
};

void add_casts(torch::Library& m, c10::ArrayRef<const char*> names, bool lower) {
  for (const char* name : names) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Cast>(lower)));
  }
}

} // namespace

void register_autocast() {
  // Never destroyed, as the kernels of the device.
  static auto* others = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  static auto* kernels = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
  at::autocast::add_pytorchs(*kernels);
  add_casts(*kernels, kLowerPrecision, true);
  for (c10::ArrayRef<const char*> names : {c10::ArrayRef(kFloat32), c10::ArrayRef(kFloat32Transforms), c10::ArrayRef(kFloat32Matrices)}) {
    add_casts(*kernels, names, false);
  }
  at::autocast::set_autocast_dtype(kXlaType, at::kBFloat16);
}

} // namespace torch_xla
