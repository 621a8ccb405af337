// Registration of the device when the library is loaded.
#pragma once

namespace torch_xla {

// Registers the device, its kernels and its collectives with PyTorch. Loading the library calls it; later calls do nothing, or throw the
// first call's error again (c10::Error). Any thread.
void register_all();

} // namespace torch_xla
