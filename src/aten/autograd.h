// Shortcut past PyTorch's autograd layers for calls without gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <span>

#include "aten/pointwise.h"

namespace torch_xla {

// `keys`: those of the kernel at the device's autograd key. True if the autograd layer would only pass the call on to the device: no tensor
// needs a gradient or has a forward one, and no other layer (a Python mode, functionalization) waits below.
bool needs_no_autograd(c10::DispatchKeySet keys, std::span<const PointwiseArg> args);
bool needs_no_autograd(c10::DispatchKeySet keys, std::span<const at::Tensor> tensors);
// ADInplaceOrView's work after a write: raises the tensor's version, unless it is an inference tensor.
void note_write(c10::DispatchKeySet keys, const at::Tensor& written);
// PyTorch's own autograd kernel; it calls by its key, with all active layers.
const c10::BoxedKernel& generic_autograd_kernel();

// Calls PyTorch's own autograd kernel of the operation, shared with AutogradOther. If a layer above called our kernel by its key, as the
// Python dispatcher does while it traces, `keys` still has that layer, and would lead back to it for ever: then this calls the kernel by
// its key too.
template <class Return, class... Args>
Return call_generic_autograd(
    const c10::TypedOperatorHandle<Return(Args...)>& op, c10::DispatchKeySet keys, std::type_identity_t<Args>... args) {
  if (keys.highestPriorityTypeId() == c10::DispatchKey::AutogradPrivateUse1) {
    c10::DispatchKeySet below = keys - c10::DispatchKeySet(c10::DispatchKey::AutogradPrivateUse1);
    return op.redispatch(below | c10::DispatchKeySet(c10::DispatchKey::AutogradOther), std::forward<Args>(args)...);
  }
  return c10::impl::BoxedKernelWrapper<Return(Args...)>::call(generic_autograd_kernel(), op, keys, std::forward<Args>(args)...);
}

} // namespace torch_xla
