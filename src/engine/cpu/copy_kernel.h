// Copies: those that are a program's kernels, and all others. One function for each size of an element serves them, so no code is made.
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

// The same of what is known when it runs, shared out among the team. The two places do not overlap.
void copy_strided(DType dtype, const Dims& dims, void* to, const Dims& to_strides, const void* from, const Dims& from_strides);

} // namespace torch_xla::cpu
