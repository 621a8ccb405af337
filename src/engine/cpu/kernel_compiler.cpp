// Loads the library of the code generator when the first kernel needs it.
#include "engine/cpu/kernel_compiler.h"

#include <dlfcn.h>

#include <climits>
#include <mutex>

#include "core/codegen_sources.h"
#include "core/errors.h"

namespace torch_xla::cpu {
namespace {

constexpr const char* kName = "libtorch_xla_compiler.so";

// The folder of this library, absolute though it may have been loaded by a relative path.
std::string own_folder() {
  Dl_info info;
  char folder[PATH_MAX] = "";
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0) {
    if (void* self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
      dlinfo(self, RTLD_DI_ORIGIN, folder);
      dlclose(self);
    }
  }
  return folder;
}

// One copy of the compiler for each copy of libtorch_xla.so that a process has; LLVM's own names are local to it.
const KernelCompiler* load() {
  const std::string path = own_folder() + "/../" + kName;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  XLA_CHECK(library, "the library that compiles kernels, ", kName, ", cannot be loaded: ", dlerror(), "; install torch_xla again");
  auto* get = reinterpret_cast<GetKernelCompiler*>(dlsym(library, kGetKernelCompiler));
  const KernelCompiler* compiler = get ? get(kCodegenSources) : nullptr;
  XLA_CHECK(compiler, "the library that compiles kernels, ", path, ", is of another build than libtorch_xla.so; install torch_xla again");
  return compiler;
}

} // namespace

const KernelCompiler& kernel_compiler() {
  static std::mutex mutex;
  static const KernelCompiler* loaded; // guarded by mutex
  std::lock_guard lock(mutex);
  if (!loaded) {
    loaded = load();
  }
  return *loaded;
}

} // namespace torch_xla::cpu
