// The functional collectives of torch.distributed.
#pragma once

namespace torch_xla {

// Registers kernels for the device that count each call by the original's name ("xla::all_gather_into_tensor") and call PyTorch's kernel.
// register_all() of cpp/load.h calls it once.
void register_functional_collectives();

} // namespace torch_xla
