// Kernels that only copy: one function for each size of an element stands for all of them, so no code is made.
#pragma once

#include <vector>

#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// Whether the kernel loads one buffer and stores what it loaded.
bool is_copy(const KernelSpec& spec);
// The function, for a spec that is a copy, and its arguments: the loops with their strides. Its units are those of the spec.
Kernel copy_kernel(const KernelSpec& spec);
std::vector<uint64_t> copy_arguments(const KernelSpec& spec);
// The one that has this hash; none where it is that of another kernel.
Kernel find_copy_kernel(const Hash128& hash);

} // namespace torch_xla::cpu
