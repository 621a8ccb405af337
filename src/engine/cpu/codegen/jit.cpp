// LLJIT with the addresses of the functions that kernels call.
#include "engine/cpu/codegen/jit.h"

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Verifier.h>

#include "core/errors.h"
#include "engine/cpu/codegen/emitter.h"
#include "engine/cpu/codegen/external.h"
#include "engine/cpu/codegen/target.h"
#include "engine/cpu/codegen/verify.h"

namespace torch_xla::cpu {

namespace {

void check(llvm::Error error) {
  if (error) {
    throw InternalError("LLVM: " + llvm::toString(std::move(error)));
  }
}

template <typename T>
T check(llvm::Expected<T> value) {
  check(value.takeError());
  return std::move(*value);
}

// The optimized module; the context must outlive it.
void build(llvm::Module& module, const KernelSpec& spec, const std::string& name) {
  verify_kernel(spec);
  Compiler& compiler = Compiler::of_this_thread();
  compiler.prepare(module);
  emit_kernel(spec, host().isa, module, name);
#ifndef NDEBUG
  std::string message;
  llvm::raw_string_ostream out(message);
  XLA_ASSERT(!llvm::verifyModule(module, &out), message, "\n", spec.text());
#endif
  compiler.optimize(module);
}

} // namespace

Jit& Jit::get() {
  static Jit* jit = new Jit();
  return *jit;
}

Jit::Jit() {
  host();
  jit_ = check(llvm::orc::LLJITBuilder().create());
  llvm::orc::SymbolMap symbols;
  for (auto& [name, address] : external_symbols()) {
    symbols[jit_->mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
  }
  check(jit_->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols))));
}

KernelFn Jit::link(const std::string& object, const std::string& name) {
  check(jit_->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object, name)));
  return check(jit_->lookup(name)).toPtr<KernelFn>();
}

std::string compile_object(const KernelSpec& spec, const std::string& name) {
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
  build(module, spec, name);
  return Compiler::of_this_thread().emit_code(module, llvm::CodeGenFileType::ObjectFile);
}

KernelListing list_kernel(const KernelSpec& spec) {
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
  build(module, spec, "kernel");
  KernelListing listing;
  llvm::raw_string_ostream(listing.llvm_ir) << module;
  listing.assembly = Compiler::of_this_thread().emit_code(module, llvm::CodeGenFileType::AssemblyFile);
  return listing;
}

} // namespace torch_xla::cpu
