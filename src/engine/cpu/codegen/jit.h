// The just-in-time linker: makes functions of the process out of object code.
#pragma once

#include <optional>
#include <string>

#include "engine/cpu/codegen/code_memory.h"
#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// Owns the code of one object; the code may run while this object lives. Immutable.
class LinkedCode {
 public:
  // `name` is a function that the object defines. Throws InternalError for an object that cannot be linked, and CodePages' errors.
  LinkedCode(const std::string& object, const std::string& name);
  KernelFn fn() const {
    return fn_;
  }
  size_t bytes() const {
    return bytes_;
  }

 private:
  std::optional<CodePages> pages_;
  KernelFn fn_ = nullptr;
  size_t bytes_ = 0;
};

// The object code of a kernel; its function gets this name.
std::string compile_object(const KernelSpec& spec, const std::string& name);
// LLVM IR and assembly of it.
KernelListing list_kernel_code(const KernelSpec& spec);

} // namespace torch_xla::cpu
