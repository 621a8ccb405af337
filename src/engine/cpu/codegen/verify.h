// Checks a kernel before code is generated.
#pragma once

#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// Throws InternalError, with the instruction and the whole kernel's text, if code generation cannot handle an instruction's types, operands
// or indices. LLVM can select every kernel that passes. Without the check LLVM's fatal errors would end the process; its error handler
// cannot throw, as LLVM is built without exceptions and would leave the compiler half way through a pass.
void verify_kernel(const KernelSpec& spec);

} // namespace torch_xla::cpu
