// The process's just-in-time linker: takes objects in, gives addresses out.
#pragma once

#include <memory>
#include <string>

#include "engine/cpu/kernel.h"

namespace llvm::orc {
class LLJIT;
}

namespace torch_xla::cpu {

// One per process, never destroyed, as code may run until the very end. Thread-safe.
class Jit {
 public:
  static Jit& get();
  // `name` is a function that the object defines.
  KernelFn link(const std::string& object, const std::string& name);

 private:
  Jit();
  std::unique_ptr<llvm::orc::LLJIT> jit_;
};

// The object code of a kernel whose function gets this name.
std::string compile_object(const KernelSpec& spec, const std::string& name);

} // namespace torch_xla::cpu
