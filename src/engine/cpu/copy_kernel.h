// Kernels that only copy: one built-in function for each element size serves all of them, so no code is generated.
#pragma once

#include <vector>

#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// Whether the kernel only loads one buffer and stores its elements.
bool is_copy(const KernelSpec& spec);
// The function, with the loops and strides as arguments, for a spec that is a copy. The function has the spec's units.
Kernel copy_kernel(const KernelSpec& spec);
std::vector<uint64_t> copy_arguments(const KernelSpec& spec);
// The copy with this hash; nothing if the hash belongs to another kernel.
Kernel find_copy_kernel(const Hash128& hash);

} // namespace torch_xla::cpu
