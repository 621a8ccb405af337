// The host CPU as LLVM sees it, and the compiler from IR to object code for it.
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

// Turns modules into code, independent of earlier modules. Not thread-safe.
class Compiler {
 public:
  // Drops the compiler, without a destructor, during an exception: LLVM's frames have cleaned nothing up.
  struct GiveBack {
    void operator()(Compiler* compiler) const;
  };
  // A compiler for the caller alone, until the pointer's end. Making one takes as long as compiling a small kernel, so they are kept.
  // Thread-safe.
  static std::unique_ptr<Compiler, GiveBack> borrow();
  ~Compiler();

  // Sets target and data layout; call it before emitting code into the module.
  void prepare(llvm::Module& module) const;
  // Runs the few passes that kernels need: their code is already vectorized.
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
