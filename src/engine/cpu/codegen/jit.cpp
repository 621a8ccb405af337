// LLJIT with the addresses of the functions that kernels call.
#include "engine/cpu/codegen/jit.h"

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Verifier.h>

#include "core/errors.h"
#include "engine/cpu/codegen/emitter.h"
#include "engine/cpu/codegen/external.h"
#include "engine/cpu/codegen/target.h"

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

// The module and all that it needs, in this order, as the context must go last.
struct Unit {
  llvm::LLVMContext context;
  llvm::Module module{"kernel", context};
  std::unique_ptr<llvm::TargetMachine> machine = create_target_machine();
};

void build(Unit& unit, const KernelSpec& spec, const std::string& name) {
  unit.module.setTargetTriple(unit.machine->getTargetTriple().str());
  unit.module.setDataLayout(unit.machine->createDataLayout());
  emit_kernel(spec, host().isa, unit.module, name);
#ifndef NDEBUG
  std::string message;
  llvm::raw_string_ostream out(message);
  XLA_ASSERT(!llvm::verifyModule(unit.module, &out), message, "\n", spec.text());
#endif
  optimize(unit.module, *unit.machine);
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
  Unit unit;
  build(unit, spec, name);
  return emit_code(unit.module, *unit.machine, llvm::CodeGenFileType::ObjectFile);
}

KernelListing list_kernel(const KernelSpec& spec) {
  Unit unit;
  build(unit, spec, "kernel");
  KernelListing listing;
  llvm::raw_string_ostream(listing.llvm_ir) << unit.module;
  listing.assembly = emit_code(unit.module, *unit.machine, llvm::CodeGenFileType::AssemblyFile);
  return listing;
}

} // namespace torch_xla::cpu
