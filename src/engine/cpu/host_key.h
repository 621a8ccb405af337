// What decides on the code of a kernel beside its text and the sources: the processor, and whether Sleef is there. Both libraries have a
// copy.
#pragma once

#include <string>

namespace torch_xla::cpu {

// True if libtorch_cpu.so, which exports Sleef, is loaded.
bool has_sleef();

// Equal where LLVM finds the same processor with the same features. Takes microseconds, so that it can be asked for where LLVM is not
// loaded.
std::string host_key();

} // namespace torch_xla::cpu
