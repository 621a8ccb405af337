// The interface of libtorch_xla_compiler.so for libtorch_xla.so: LLVM and codegen/, without torch, so one library serves every release.
// Kernels, code and errors (core/errors.h) cross as plain C++ types that both libraries were compiled with.
#pragma once

#include <memory>
#include <string>

#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// The code of one object; it may run as long as `code` lives.
struct LinkedKernel {
  KernelFn fn;
  size_t bytes;
  std::shared_ptr<const void> code;
};

// Thread-safe. Immutable, and never destroyed.
class KernelCompiler {
 public:
  // Object code of the kernel; its function gets this name. Throws as compile_kernel().
  virtual std::string compile(const KernelSpec& spec, const std::string& name) const = 0;
  // Throws InternalError for an object that cannot be linked, and UserError (OutOfMemory) if memory is out.
  virtual LinkedKernel link(const std::string& object, const std::string& name) const = 0;
  virtual KernelListing list(const KernelSpec& spec) const = 0;

 protected:
  ~KernelCompiler() = default;
};

// The one function that the library exports. Returns null if the library was not built from the sources with this hash (kCodegenSources).
using GetKernelCompiler = const KernelCompiler*(const char* sources);
constexpr const char* kGetKernelCompiler = "torch_xla_kernel_compiler";

// Loads the library at the first call, from the folder above libtorch_xla.so's. Thread-safe. Throws UserError (Runtime) that names the file
// if it cannot be loaded; the next call tries again.
const KernelCompiler& kernel_compiler();
// Gives the system the memory of the library's code back until it is needed again, 28 MB: for who runs and compiles no more. Thread-safe.
void rest_kernel_compiler();

} // namespace torch_xla::cpu
