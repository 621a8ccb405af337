// The key of the host that compiled kernels depend on: the processor, and whether Sleef is loaded. The package's two libraries each have a
// copy.
#pragma once

#include <string>

namespace torch_xla::cpu {

// True if libtorch_cpu.so, which exports Sleef, is loaded.
bool has_sleef();

// Equal where LLVM finds the same processor with the same features. Takes microseconds and does not load LLVM.
std::string host_key();

} // namespace torch_xla::cpu
