// Checks a kernel before code is generated.
#pragma once

#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// Throws InternalError with the instruction and the whole kernel's text where an instruction has types, operands or indices that code
// generation has no code for. What passes, LLVM can select: its own fatal errors end the process, and an exception thrown from its handler
// would leave this thread's compiler half way through a pass, as LLVM is built without exceptions and cleans nothing up.
void verify_kernel(const KernelSpec& spec);

} // namespace torch_xla::cpu
