// What loading the library does.
#pragma once

namespace torch_xla {

// Registers the device, its kernels and its collectives with PyTorch. Loading the library does it; every other call does nothing, or throws
// again what hindered it (c10::Error). Any thread.
void register_all();

} // namespace torch_xla
