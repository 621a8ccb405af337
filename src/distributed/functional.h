// The functional collectives of torch.distributed.
#pragma once

namespace torch_xla {

// Registers their kernels for the device, which count the calls by the original's names ("xla::all_gather_into_tensor") and call PyTorch's
// kernels. register_all() of cpp/load.h calls it once.
void register_functional_collectives();

} // namespace torch_xla
