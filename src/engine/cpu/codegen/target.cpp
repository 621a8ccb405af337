// Host features, pass pipeline and code emission.
#include "engine/cpu/codegen/target.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <mutex>
#include <new>
#include <vector>

#include <llvm/ADT/SmallString.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include "core/errors.h"
#include "engine/cpu/host_key.h"

namespace torch_xla::cpu {

namespace {

// Each pass was chosen by measuring: O2 makes nothing faster and takes ten times as long. instcombine finds nothing that instruction
// selection misses, and took as long as all of these.
constexpr const char* kPasses = "function(early-cse,instsimplify,loop-mssa(licm),early-cse)";

// Passes of code generation that are left out, as they took more than half of its time and make no kernel faster
// (docs/decisions/kernels.md).
constexpr const char* kOptions[] = {"torch_xla", "-disable-machine-licm", "-disable-lsr", "-disable-post-ra"};

// LLVM ends the process if these handlers return. Its libraries are compiled without exceptions, but with unwind tables: an error passes
// through their frames, which clean nothing up.
void raise_bad_alloc(void* /*data*/, const char* /*reason*/, bool /*writes_crash_report*/) {
  throw std::bad_alloc();
}
void raise_fatal(void* /*data*/, const char* reason, bool /*writes_crash_report*/) {
  throw InternalError(str("LLVM: ", reason));
}

Host find_host() {
  llvm::install_bad_alloc_error_handler(&raise_bad_alloc);
  llvm::install_fatal_error_handler(&raise_fatal);
  bool known = llvm::cl::ParseCommandLineOptions(std::size(kOptions), kOptions, "", &llvm::nulls());
  XLA_ASSERT(known, "LLVM does not know an option");
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
  h.isa.sleef = has_sleef();
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

struct FreeCompilers {
  std::mutex mutex;
  std::vector<std::unique_ptr<Compiler>> list; // guarded by mutex
};

// Never destroyed, as threads may compile until the process ends.
FreeCompilers& free_compilers() {
  static auto* free = new FreeCompilers;
  return *free;
}

} // namespace

const Host& host() {
  static const Host* h = new Host(find_host());
  return *h;
}

struct Compiler::Passes {
  explicit Passes(llvm::TargetMachine* machine) : builder(machine), out(bytes) {
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(components);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, components, modules);
    if (auto error = builder.parsePassPipeline(pipeline, kPasses)) {
      throw InternalError("LLVM: " + llvm::toString(std::move(error)));
    }
    XLA_ASSERT(!machine->addPassesToEmitFile(code, out, nullptr, llvm::CodeGenFileType::ObjectFile), "LLVM cannot emit objects");
  }

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder;
  llvm::ModulePassManager pipeline;
  llvm::SmallString<0> bytes; // of the object that `code` has written
  llvm::raw_svector_ostream out;
  llvm::legacy::PassManager code; // made once: that takes 0.7 ms
};

Compiler::Compiler() : machine_(create_target_machine()), passes_(std::make_unique<Passes>(machine_.get())) {}

Compiler::~Compiler() = default;

std::unique_ptr<Compiler, Compiler::GiveBack> Compiler::borrow() {
  {
    std::lock_guard<std::mutex> lock(free_compilers().mutex);
    std::vector<std::unique_ptr<Compiler>>& free = free_compilers().list;
    if (!free.empty()) {
      Compiler* compiler = free.back().release();
      free.pop_back();
      return std::unique_ptr<Compiler, GiveBack>(compiler);
    }
  }
  return std::unique_ptr<Compiler, GiveBack>(new Compiler);
}

void Compiler::GiveBack::operator()(Compiler* compiler) const {
  if (std::uncaught_exceptions() > 0) {
    return;
  }
  std::lock_guard<std::mutex> lock(free_compilers().mutex);
  free_compilers().list.emplace_back(compiler);
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

std::string Compiler::emit_object(llvm::Module& module) {
  passes_->code.run(module);
  std::string object = passes_->bytes.str().str();
  passes_->bytes.clear();
  return object;
}

std::string Compiler::emit_assembly(llvm::Module& module) {
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream out(text);
  llvm::legacy::PassManager passes;
  XLA_ASSERT(!machine_->addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile), "LLVM cannot emit assembly");
  passes.run(module);
  return text.str().str();
}

} // namespace torch_xla::cpu
