// Conditions under which a call needs none of PyTorch's autograd layers.
#include "aten/autograd.h"

#include <c10/core/GradMode.h>

namespace torch_xla {
namespace {

bool takes_part(const at::Tensor& t) {
  if (!t.unsafeGetTensorImpl()->autograd_meta()) {
    return false;
  }
  return (t.requires_grad() && c10::GradMode::is_enabled()) || t._fw_grad(/*level=*/0).defined();
}

void call_registered_autograd(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(c10::DispatchKey::Autograd, *stack);
}

} // namespace

bool needs_no_autograd(c10::DispatchKeySet keys, std::span<const PointwiseArg> args) {
  c10::DispatchKeySet below = (keys & c10::after_autograd_keyset) - c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView);
  if (below.highestPriorityTypeId() != c10::DispatchKey::PrivateUse1) {
    return false;
  }
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && takes_part(*arg.tensor)) {
      return false;
    }
  }
  return true;
}

void note_write(c10::DispatchKeySet keys, const at::Tensor& written) {
  if (keys.has(c10::DispatchKey::ADInplaceOrView)) {
    written.unsafeGetTensorImpl()->bump_version();
  }
}

const c10::BoxedKernel& generic_autograd_kernel() {
  static const auto kernel = c10::BoxedKernel::makeFromFunction<&call_registered_autograd>();
  return kernel;
}

} // namespace torch_xla
