// Kernels that only copy: one function for each size of an element stands for all of them, so no code is made.
#pragma once

#include <vector>

#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// Whether the kernel loads one buffer and stores what it loaded.
bool is_copy(const KernelSpec& spec);
// The function and its arguments, the loops with their strides, for a spec that is a copy. The function has the spec's units.
Kernel copy_kernel(const KernelSpec& spec);
std::vector<uint64_t> copy_arguments(const KernelSpec& spec);
// The copy with this hash; nothing if the hash belongs to another kernel.
Kernel find_copy_kernel(const Hash128& hash);

} // namespace torch_xla::cpu
