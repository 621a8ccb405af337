// Conditions under which a call needs none of PyTorch's autograd layers.
#include "aten/autograd.h"

#include <c10/core/GradMode.h>

#include <algorithm>

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

bool leads_to_device(c10::DispatchKeySet keys) {
  c10::DispatchKeySet below = (keys & c10::after_autograd_keyset) - c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView);
  return below.highestPriorityTypeId() == c10::DispatchKey::PrivateUse1;
}

} // namespace

bool needs_no_autograd(c10::DispatchKeySet keys, std::span<const PointwiseArg> args) {
  return leads_to_device(keys) &&
      std::none_of(args.begin(), args.end(), [](const PointwiseArg& arg) { return arg.tensor && takes_part(*arg.tensor); });
}

bool needs_no_autograd(c10::DispatchKeySet keys, std::span<const at::Tensor> tensors) {
  return leads_to_device(keys) && std::none_of(tensors.begin(), tensors.end(), takes_part);
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
