// Linking: sections are relocated in scratch memory for the addresses where they then go.
#include "engine/cpu/codegen/jit.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <unordered_map>

#include <llvm/ExecutionEngine/JITSymbol.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Object/ObjectFile.h>

#include "core/errors.h"
#include "engine/cpu/codegen/emitter.h"
#include "engine/cpu/codegen/external.h"
#include "engine/cpu/codegen/target.h"
#include "engine/cpu/codegen/verify.h"

namespace torch_xla::cpu {

namespace {

template <typename T>
T check(llvm::Expected<T> value) {
  if (!value) {
    throw InternalError("LLVM: " + llvm::toString(value.takeError()));
  }
  return std::move(*value);
}

// The addresses of the functions that kernels call.
class Externals final : public llvm::LegacyJITSymbolResolver {
 public:
  llvm::JITSymbol findSymbolInLogicalDylib(const std::string& /*name*/) override {
    return nullptr;
  }
  llvm::JITSymbol findSymbol(const std::string& name) override {
    static const auto* known = [] {
      auto symbols = external_symbols();
      return new std::unordered_map<std::string, void*>(symbols.begin(), symbols.end());
    }();
    auto found = known->find(name);
    void* address = found == known->end() ? dlsym(RTLD_DEFAULT, name.c_str()) : found->second;
    return {reinterpret_cast<uint64_t>(address), address ? llvm::JITSymbolFlags::Exported : llvm::JITSymbolFlags::None};
  }
};

// The sections of one object in scratch memory. No section of a kernel is written when it runs, so all may lie in the pages of code.
class Sections final : public llvm::RuntimeDyld::MemoryManager {
 public:
  uint8_t* allocateCodeSection(uintptr_t size, unsigned alignment, unsigned /*id*/, llvm::StringRef /*name*/) override {
    return add(size, alignment);
  }
  uint8_t* allocateDataSection(uintptr_t size, unsigned alignment, unsigned /*id*/, llvm::StringRef /*name*/, bool /*read_only*/) override {
    return add(size, alignment);
  }
  void registerEHFrames(uint8_t* /*address*/, uint64_t /*load_address*/, size_t /*size*/) override {}
  void deregisterEHFrames() override {}
  bool finalizeMemory(std::string* /*error*/) override {
    return false;
  }

  // Bytes of all sections, one behind the other.
  size_t size() const {
    return size_;
  }
  void map(llvm::RuntimeDyld& linker, char* target) const {
    for (const Section& s : sections_) {
      linker.mapSectionAddress(s.bytes.get(), reinterpret_cast<uint64_t>(target + s.offset));
    }
  }
  void copy_to(char* target) const {
    for (const Section& s : sections_) {
      std::memcpy(target + s.offset, s.bytes.get(), s.size);
    }
  }

 private:
  struct Section {
    std::unique_ptr<uint8_t[]> bytes;
    size_t size;
    size_t offset;
  };

  uint8_t* add(size_t size, size_t alignment) {
    size_t offset = llvm::alignTo(size_, std::max<size_t>(alignment, 1));
    sections_.push_back({std::make_unique<uint8_t[]>(size), size, offset});
    size_ = offset + size;
    return sections_.back().bytes.get();
  }

  std::vector<Section> sections_;
  size_t size_ = 0;
};

[[noreturn]] void refuse_for_memory() {
  throw UserError(ErrorKind::OutOfMemory, "no memory left to compile a kernel");
}

// Checks first that there is more memory than a kernel takes. Throwing through LLVM's frames is the last resort: if it leaves a frame that
// builds one of LLVM's tables, made once each, the next call waits for that table for ever.
void check_room() {
  constexpr size_t kBytes = size_t{64} << 20;
  void* room = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) {
    refuse_for_memory();
  }
  munmap(room, kBytes);
}

// Leaves an object of LLVM's behind if an exception in LLVM's code has left it incomplete: see Compiler::GiveBack.
struct DeleteIfWhole {
  template <typename T>
  void operator()(T* object) const {
    if (std::uncaught_exceptions() == 0) {
      delete object;
    }
  }
};

// By default LLVM ends the process.
void raise(const llvm::DiagnosticInfo* diagnostic, void* /*context*/) {
  if (diagnostic->getSeverity() == llvm::DS_Error) {
    std::string text;
    llvm::raw_string_ostream out(text);
    llvm::DiagnosticPrinterRawOStream printer(out);
    diagnostic->print(printer);
    throw InternalError("LLVM: " + out.str());
  }
}

// The optimized module of a kernel, and the compiler for its code.
struct Compilation {
  std::unique_ptr<Compiler, Compiler::GiveBack> compiler = Compiler::borrow();
  std::unique_ptr<llvm::LLVMContext, DeleteIfWhole> context{new llvm::LLVMContext};
  std::unique_ptr<llvm::Module, DeleteIfWhole> module{new llvm::Module("kernel", *context)};

  Compilation(const KernelSpec& spec, const std::string& name) {
    context->setDiagnosticHandlerCallBack(&raise);
    verify_kernel(spec);
    compiler->prepare(*module);
    emit_kernel(spec, host().isa, *module, name);
#ifndef NDEBUG
    std::string message;
    llvm::raw_string_ostream out(message);
    XLA_ASSERT(!llvm::verifyModule(*module, &out), message, "\n", spec.text());
#endif
    compiler->optimize(*module);
  }
};

} // namespace

LinkedCode::LinkedCode(const std::string& object, const std::string& name) {
  auto file = check(llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, name)));
  Externals externals;
  Sections sections;
  llvm::RuntimeDyld linker(sections, externals);
  auto loaded = linker.loadObject(*file);
  if (!linker.hasError()) {
    bytes_ = sections.size();
    pages_.emplace(bytes_);
    sections.map(linker, pages_->data());
    linker.resolveRelocations();
    fn_ = reinterpret_cast<KernelFn>(linker.getSymbol(name).getAddress());
  }
  if (linker.hasError() || !fn_) {
    throw InternalError(str("LLVM: cannot link ", name, ": ", linker.getErrorString().str()));
  }
  sections.copy_to(pages_->data());
  pages_->seal();
}

std::string compile_object(const KernelSpec& spec, const std::string& name) {
  check_room();
  try {
    Compilation compilation(spec, name);
    return compilation.compiler->emit_object(*compilation.module);
  } catch (const std::bad_alloc&) {
    refuse_for_memory();
  }
}

KernelListing list_kernel_code(const KernelSpec& spec) {
  Compilation compilation(spec, "kernel");
  KernelListing listing;
  llvm::raw_string_ostream(listing.llvm_ir) << *compilation.module;
  listing.assembly = compilation.compiler->emit_assembly(*compilation.module);
  return listing;
}

} // namespace torch_xla::cpu
