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

// Turns modules into code. Not thread-safe; making one takes about as long as compiling a small kernel, so each thread keeps its own.
class Compiler {
 public:
  static Compiler& of_this_thread();
  ~Compiler();

  // Target and data layout, to be set before code is emitted into the module.
  void prepare(llvm::Module& module) const;
  // Runs the passes that kernels need, which is few: they are emitted as vectors already.
  void optimize(llvm::Module& module);
  std::string emit_code(llvm::Module& module, llvm::CodeGenFileType kind);

 private:
  struct Passes;
  Compiler();
  std::unique_ptr<llvm::TargetMachine> machine_;
  std::unique_ptr<Passes> passes_;
};

} // namespace torch_xla::cpu
