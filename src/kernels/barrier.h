// xm.optimization_barrier_.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_xla {

// Gives each tensor its value again, behind a barrier: computed when all of them are; nothing merges or moves across it. Invisible to
// autograd. Throws UserError (Value) for tensors not on one device `xla`. Call without the GIL.
void optimization_barrier(const std::vector<at::Tensor>& tensors);

} // namespace torch_xla
