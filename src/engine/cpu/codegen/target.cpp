// Host features, pass pipeline and code emission.
#include "engine/cpu/codegen/target.h"

#include <algorithm>

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

std::unique_ptr<llvm::TargetMachine> create_target_machine() {
  const Host& h = host();
  std::string triple = llvm::sys::getProcessTriple();
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  XLA_ASSERT(target, error);
  llvm::TargetOptions options;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, h.cpu, h.features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, /*JIT=*/true));
}

} // namespace

const Host& host() {
  static const Host* h = new Host(find_host());
  return *h;
}

struct Compiler::Passes {
  explicit Passes(llvm::TargetMachine* machine) : builder(machine) {
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(components);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, components, modules);
    if (auto error = builder.parsePassPipeline(pipeline, kPasses)) {
      throw InternalError("LLVM: " + llvm::toString(std::move(error)));
    }
  }

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder;
  llvm::ModulePassManager pipeline;
};

Compiler::Compiler() : machine_(create_target_machine()), passes_(std::make_unique<Passes>(machine_.get())) {}

Compiler::~Compiler() = default;

Compiler& Compiler::of_this_thread() {
  static thread_local Compiler compiler;
  return compiler;
}

void Compiler::prepare(llvm::Module& module) const {
  module.setTargetTriple(machine_->getTargetTriple().str());
  module.setDataLayout(machine_->createDataLayout());
}

// Results of analyses are keyed by addresses, which the next module may have again.
void Compiler::optimize(llvm::Module& module) {
  passes_->pipeline.run(module, passes_->modules);
  passes_->loops.clear();
  passes_->functions.clear();
  passes_->components.clear();
  passes_->modules.clear();
}

std::string Compiler::emit_code(llvm::Module& module, llvm::CodeGenFileType kind) {
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  XLA_ASSERT(!machine_->addPassesToEmitFile(passes, out, nullptr, kind), "LLVM cannot emit code of this kind");
  passes.run(module);
  return bytes.str().str();
}

} // namespace torch_xla::cpu
