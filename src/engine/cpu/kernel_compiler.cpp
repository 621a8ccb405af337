// Loads the library of the code generator when the first kernel needs it.
#include "engine/cpu/kernel_compiler.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
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

struct Loaded {
  const KernelCompiler* compiler = nullptr;
  const link_map* place = nullptr;
};

// One copy of the compiler for each copy of libtorch_xla.so that a process has; LLVM's own names are local to it.
Loaded load() {
  const std::string path = own_folder() + "/../" + kName;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  XLA_CHECK(library, "the library that compiles kernels, ", kName, ", cannot be loaded: ", dlerror(), "; install torch_xla again");
  auto* get = reinterpret_cast<GetKernelCompiler*>(dlsym(library, kGetKernelCompiler));
  const KernelCompiler* compiler = get ? get(kCodegenSources) : nullptr;
  XLA_CHECK(compiler, "the library that compiles kernels, ", path, ", is of another build than libtorch_xla.so; install torch_xla again");
  Loaded loaded{compiler};
  dlinfo(library, RTLD_DI_LINKMAP, &loaded.place);
  return loaded;
}

// Of the library at this link_map: what nobody writes comes again from its file.
int drop_pages(dl_phdr_info* info, size_t /*size*/, void* place) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (ElfW(Half) i = 0; info->dlpi_addr == static_cast<link_map*>(place)->l_addr && i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_LOAD && !(part.p_flags & PF_W)) {
      const uintptr_t begin = (info->dlpi_addr + part.p_vaddr) / page * page;
      madvise(reinterpret_cast<void*>(begin), part.p_memsz, MADV_DONTNEED); // NOLINT(performance-no-int-to-ptr)
    }
  }
  return 0;
}

std::atomic<const link_map*> awake{nullptr}; // where the compiler lies, if it was used since it gave memory back

} // namespace

const KernelCompiler& kernel_compiler() {
  static std::mutex mutex;
  static Loaded loaded; // guarded by mutex
  std::lock_guard lock(mutex);
  if (!loaded.compiler) {
    loaded = load();
  }
  awake = loaded.place;
  return *loaded.compiler;
}

void rest_kernel_compiler() {
  if (const link_map* place = awake.exchange(nullptr)) {
    dl_iterate_phdr(&drop_pages, const_cast<link_map*>(place));
  }
}

} // namespace torch_xla::cpu
