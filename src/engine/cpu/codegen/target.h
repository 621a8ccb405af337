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

// Turns modules into code, the same whatever it has compiled before. Not thread-safe.
class Compiler {
 public:
  // Where an error is in flight the compiler is left behind: LLVM's frames that it has passed through have cleaned nothing up.
  struct GiveBack {
    void operator()(Compiler* compiler) const;
  };
  // One that nobody else uses, until the pointer goes. Making one takes as long as compiling a small kernel, so they are kept. Thread-safe.
  static std::unique_ptr<Compiler, GiveBack> borrow();
  ~Compiler();

  // Target and data layout, to be set before code is emitted into the module.
  void prepare(llvm::Module& module) const;
  // Runs the passes that kernels need, which is few: they are emitted as vectors already.
  void optimize(llvm::Module& module);
  std::string emit_object(llvm::Module& module);
  std::string emit_assembly(llvm::Module& module);

 private:
  struct Passes;
  Compiler();
  std::unique_ptr<llvm::TargetMachine> machine_;
  std::unique_ptr<Passes> passes_;
};

} // namespace torch_xla::cpu
