// The way from a trace to its program.
#include "tensor/program.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "core/env.h"
#include "core/errors.h"
#include "core/metrics.h"
#include "core/observer.h"
#include "engine/program_store.h"
#include "ir/structure.h"
#include "runtime/interrupt.h"
#include "tensor/analysis.h"
#include "tensor/compile_reason.h"
#include "tensor/compile_settings.h"
#include "tensor/source_line.h"

namespace torch_xla {
namespace {

ProgramCache& program_cache(int device) {
  static auto* caches = new std::vector<ProgramCache>(kMaxDevices, ProgramCache(env::program_cache_size()));
  return (*caches)[static_cast<size_t>(device)];
}

void print_reason(const Trace& trace, const CompileReason& reason) {
  const Graph& graph = trace.graph();
  env::debug_print(
      "compile",
      str(reason_text(reason), "\n  nodes: ", graph.nodes.size(), ", parameters: ", graph.parameters.size(), ", key: ", trace.key().hex()));
}

CompileOptions compile_options(int device, Trace& trace, CompileSettings settings) {
  CompileOptions options;
  options.device = device;
  options.precision = settings.precision;
  options.custom = std::move(settings.custom);
  options.donated = find_donated(trace.inputs());
  options.location = [&trace](int32_t node) { return line_of(trace.locations(), node); };
  options.poll = &interrupt::poll;
  options.keep_text = env::debug_level() >= 3;
  return options;
}

// The structures of the traces that have programs, each with the key of the first and the latest program. Thread-safe.
class KnownStructures {
 public:
  static KnownStructures& get() {
    static auto* known = new KnownStructures; // never destroyed, as programs may be compiled until the process ends
    return *known;
  }
  // Whether another trace was the first of this structure.
  bool add(const Hash128& structure, const Hash128& trace) {
    constexpr size_t kMost = size_t{1} << 16;
    std::lock_guard<std::mutex> lock(mutex_);
    if (known_.size() >= kMost) {
      known_.clear(); // to be learned again
    }
    return known_.emplace(structure, Known{trace, {}}).first->second.first != trace;
  }
  // Until it has run it is taken to be as short as the one before, or shorter.
  void add_program(const Hash128& structure, const std::shared_ptr<Executable>& program) {
    std::lock_guard<std::mutex> lock(mutex_);
    Known& known = known_[structure];
    if (std::shared_ptr<Executable> before = known.latest.lock()) {
      program->last_run_ns = std::min(program->last_run_ns.load(), before->last_run_ns.load());
    }
    known.latest = program;
  }

 private:
  struct Known {
    Hash128 first;
    std::weak_ptr<Executable> latest;
  };

  std::mutex mutex_;
  std::unordered_map<Hash128, Known> known_; // guarded by mutex_
};

// `key`: by which the program is put on disk. A trace of a `known` structure for which no code has to be made is planned anew only.
void compile(
    const Trace& trace, const Graph& graph, CompileOptions& options, const ProgramKey& key, SyncCause cause, bool known, Program& program) {
  static metrics::Counter count("UncachedCompile");
  static metrics::Counter replanned("ReplannedProgram");
  static metrics::Counter handles("CreateCompileHandles");
  std::optional<ProgramFacts> facts;
  observer::Span span(observer::Phase::kCompile, options.device, operation_of(graph));
  span.set_detail(cause_text(cause));
  handles.add();
  std::string stored;
  bool needs_new_code = true;
  options.stored = key.empty() ? nullptr : &stored;
  options.needs_new_code = &needs_new_code;
  program.executable = engine().compile_trace(graph, options);
  if (known && !needs_new_code) {
    span.set_replan();
    replanned.add();
  } else {
    count.add();
  }
  ProgramStore::get().put(key, stored);
  if (start_analysis()) {
    span.set_program(facts.emplace(trace, program, options.donated).get());
  }
}

// The program's executable: from the disk, or compiled.
void find_or_make_executable(
    Trace& trace,
    const Graph& graph,
    const Hash128& structure,
    CompileOptions options,
    SyncCause cause,
    const std::function<CompileReason()>& find_reason,
    Program& program) {
  bool known = engine().reuses_code() && KnownStructures::get().add(structure, trace.key());
  // Dumps show how the program is made.
  ProgramKey key = options.keep_text || known ? ProgramKey() : ProgramStore::get().key_of(engine(), graph, structure, options);
  program.executable = ProgramStore::get().find(engine(), key, options);
  if (program.executable) {
    CompileHistory::get().add_restored(options.device, trace);
    return;
  }
  CompileReason reason = find_reason();
  if (env::debug_level() >= 1) {
    print_reason(trace, reason);
  }
  known = known || ProgramStore::get().teach(engine(), key);
  compile(trace, graph, options, key, cause, known, program);
  CompileHistory::get().add(trace, reason);
}

} // namespace

FoundProgram find_or_compile(int device, Trace& trace, const ValueBits& alive, SyncCause cause) {
  static metrics::Counter hits("CachedCompile");
  static const bool moves_views = engine().moves_views();
  Hash128 key = moves_views ? trace.key_without_offsets() : trace.key();
  CompileSettings settings = read_compile_settings();
  key.add(settings.hash());
  ProgramEntry& entry = program_cache(device).entry(key, trace.offsets());
  std::vector<uint64_t> numbers = entry.offsets.numbers(trace.offsets());
  if (const Program* program = find_program(entry, alive)) {
    hits.add();
    return {*program, std::move(numbers)};
  }
  auto find_reason = [&] { return CompileHistory::get().find(device, trace, entry, alive, cause_text(cause)); };
  entry.wanted.resize(alive.size(), 0);
  for (size_t i = 0; i < alive.size(); ++i) {
    entry.wanted[i] |= alive[i];
  }
  Graph graph = trace.graph();
  entry.offsets.apply(graph);
  graph.outputs = list_values(entry.wanted);
  Program program{nullptr, graph.outputs, entry.wanted};
  const Hash128 structure = structure_of(graph);
  find_or_make_executable(trace, graph, structure, compile_options(device, trace, std::move(settings)), cause, find_reason, program);
  KnownStructures::get().add_program(structure, program.executable);
  entry.programs.push_back(std::move(program));
  return {entry.programs.back(), std::move(numbers)};
}

std::vector<bool> find_donated(const std::vector<BufferRef>& inputs) {
  std::vector<bool> donated(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    donated[i] = inputs[i]->owners.load(std::memory_order_acquire) == 0;
  }
  return donated;
}

std::string line_of(std::span<const int64_t> locations, int32_t node) {
  return node >= 0 && static_cast<size_t>(node) < locations.size() ? location_text(locations[static_cast<size_t>(node)]) : std::string();
}

const char* operation_of(const Graph& graph) {
  return env::lazy() || graph.nodes.empty() ? "" : graph.nodes.back().op->name;
}

} // namespace torch_xla
