// xm.optimization_barrier_.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_xla {

// Gives each tensor its own value again, behind a barrier: computed when all of them are, by nothing that is merged or moved across.
// Autograd does not see it. Throws UserError (Value) for tensors that are not of one device `xla`. Call without the GIL.
void optimization_barrier(const std::vector<at::Tensor>& tensors);

} // namespace torch_xla
