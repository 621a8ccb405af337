// The functional collectives of torch.distributed.
#pragma once

namespace torch_xla {

// Their kernels for the device, which count them by name ("xla::all_gather_into_tensor", as the original) and leave the rest to PyTorch's.
// For register_all() of cpp/load.h, which calls it once.
void register_functional_collectives();

} // namespace torch_xla
