// Short cut past PyTorch's autograd layers for calls in which no gradient is asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "tensor/pointwise.h"

namespace torch_xla {

// `keys` is what the dispatcher gave to the kernel at the device's autograd key. True when the autograd layer would only pass the call on
// to the device: no tensor needs a gradient or carries a forward one, and no other layer (a Python mode, functionalization) waits below.
bool needs_no_autograd(c10::DispatchKeySet keys, std::span<const PointwiseArg> args);
// What the layer ADInplaceOrView does after a write: raises the version of the tensor, unless it is an inference tensor.
void note_write(c10::DispatchKeySet keys, const at::Tensor& written);
// Keys that lead to PyTorch's own autograd kernel of the operation, which AutogradOther shares.
inline c10::DispatchKeySet generic_autograd(c10::DispatchKeySet keys) {
  return (keys - c10::DispatchKeySet(c10::DispatchKey::AutogradPrivateUse1)) | c10::DispatchKeySet(c10::DispatchKey::AutogradOther);
}

} // namespace torch_xla
