// TargetMachine, pass pipeline and code emission.
#include "engine/cpu/codegen/target.h"

#include <llvm/ADT/SmallString.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>

#include "core/errors.h"
#include "engine/cpu/codegen/external.h"

namespace torch_xla::cpu {

namespace {

// Each pass was chosen by measuring: O2 makes nothing faster and takes ten times as long.
constexpr const char* kPasses = "function(early-cse,instcombine<no-verify-fixpoint>,loop-mssa(licm),early-cse)";

Host find_host() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  Host h;
  h.cpu = llvm::sys::getHostCPUName().str();
  auto features = llvm::sys::getHostCPUFeatures();
  std::vector<std::string> names;
  for (const auto& f : features) {
    names.push_back((f.second ? "+" : "-") + f.first().str());
  }
  std::sort(names.begin(), names.end()); // the map's order changes from run to run, and this is part of the cache key
  for (const std::string& name : names) {
    h.features += (h.features.empty() ? "" : ",") + name;
  }
  auto has = [&](const char* name) { return features.lookup(name); };
  h.isa.avx512 = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl");
  h.isa.sleef = sleef_loaded();
  return h;
}

} // namespace

const Host& host() {
  static const Host* h = new Host(find_host());
  return *h;
}

std::unique_ptr<llvm::TargetMachine> create_target_machine() {
  const Host& h = host();
  std::string triple = llvm::sys::getProcessTriple();
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  XLA_ASSERT(target, error);
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple,
      h.cpu,
      h.features,
      llvm::TargetOptions(),
      llvm::Reloc::PIC_,
      llvm::CodeModel::Small,
      llvm::CodeGenOptLevel::Default,
      /*JIT=*/true));
}

void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  if (auto error = builder.parsePassPipeline(passes, kPasses)) {
    throw InternalError("LLVM: " + llvm::toString(std::move(error)));
  }
  passes.run(module, modules);
}

std::string emit_code(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType kind) {
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  XLA_ASSERT(!machine.addPassesToEmitFile(passes, out, nullptr, kind), "LLVM cannot emit code of this kind");
  passes.run(module);
  return bytes.str().str();
}

} // namespace torch_xla::cpu
