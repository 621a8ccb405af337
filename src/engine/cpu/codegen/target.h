// The host CPU as LLVM sees it, and turning IR into object code for it.
#pragma once

#include <memory>
#include <string>

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "engine/cpu/codegen/vec.h"

namespace torch_xla::cpu {

struct Host {
  std::string cpu;
  std::string features;
  Isa isa;
};

// Found once.
const Host& host();

// One per thread that compiles: a TargetMachine is not thread-safe.
std::unique_ptr<llvm::TargetMachine> create_target_machine();

// Runs the passes that kernels need, which is few: they are emitted as vectors already.
void optimize(llvm::Module& module, llvm::TargetMachine& machine);
std::string emit_code(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType kind);

} // namespace torch_xla::cpu
