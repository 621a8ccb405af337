// From a trace to its program.
#include "program/program.h"

#include <ATen/Context.h>

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
#include "program/analysis.h"
#include "program/compile_reason.h"
#include "program/compile_settings.h"
#include "program/known_numbers.h"
#include "runtime/interrupt.h"
#include "trace/recorder.h"
#include "trace/source_line.h"

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

CompileOptions compile_options(Trace& trace, CompileSettings settings, std::optional<std::vector<bool>> donated) {
  CompileOptions options;
  options.device = trace.device();
  options.precision = settings.precision;
  options.custom = std::move(settings.custom);
  options.donated = donated ? *std::move(donated) : find_donated(trace.device(), &trace, trace.inputs(), trace.replaced());
  options.location = [&trace](int32_t node) { return line_of(trace.locations(), node); };
  options.poll = &interrupt::poll;
  options.keep_text = env::debug_level() >= 3;
  return options;
}

// Structures of the traces with programs, each with the key of its first trace and its latest program. Thread-safe.
class KnownStructures {
 public:
  static KnownStructures& get() {
    static auto* known = new KnownStructures; // never destroyed: programs may be compiled until the process ends
    return *known;
  }
  // Whether the first trace of this structure was another one.
  bool add(const Hash128& structure, const Hash128& trace) {
    constexpr size_t kMost = size_t{1} << 16;
    std::lock_guard<std::mutex> lock(mutex_);
    if (known_.size() >= kMost) {
      known_.clear(); // and learn again
    }
    return known_.emplace(structure, Known{trace, {}}).first->second.first != trace;
  }
  // Until the program has run, its time counts as at most its predecessor's, scaled up by the graph's elements.
  void add_program(const Hash128& structure, const std::shared_ptr<Executable>& program, const Graph& graph) {
    const double elements = count_elements(graph);
    std::lock_guard<std::mutex> lock(mutex_);
    Known& known = known_[structure];
    known.interpreted += program->is_interpreted() ? std::ssize(graph.nodes) : 0;
    std::shared_ptr<Executable> before = known.latest.lock();
    if (before && before->usual_run_ns != INT64_MAX) {
      const double expected_ns = static_cast<double>(before->usual_run_ns) * std::max(1.0, elements / known.elements);
      if (expected_ns < static_cast<double>(program->usual_run_ns)) {
        program->usual_run_ns = static_cast<int64_t>(expected_ns);
      }
    }
    known.latest = program;
    known.elements = elements;
  }
  // The operations of the structure's interpreted programs, each program counted once.
  int64_t interpreted(const Hash128& structure) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto known = known_.find(structure);
    return known == known_.end() ? 0 : known->second.interpreted;
  }

 private:
  // Elements of all values.
  static double count_elements(const Graph& graph) {
    double elements = 1;
    for (size_t v = 0; v < graph.values.size(); ++v) {
      elements += static_cast<double>(graph.type(static_cast<ValueId>(v)).numel());
    }
    return elements;
  }

  struct Known {
    Hash128 first;
    std::weak_ptr<Executable> latest;
    double elements = 1; // of that one
    int64_t interpreted = 0;
  };

  std::mutex mutex_;
  std::unordered_map<Hash128, Known> known_; // guarded by mutex_
};

// The ways to make a program for a trace.
enum class Making : uint8_t {
  kAny,
  kCompiled, // to run often
  kPromoted, // the same, replacing an interpreted one
};

// A program to be made.
struct Wanted {
  const Trace& trace;
  const Graph& graph; // the trace with the program's outputs and moving views
  Hash128 structure; // of the graph
  SyncCause cause;
  Making making;
};

// Whether each run must compute the same: the later compile of an interpreted program changes last bits.
bool is_settled(SyncCause cause) {
  return cause == SyncCause::kReplay || at::globalContext().deterministicAlgorithms();
}

// Dumps and unusual pipelines must show how programs are compiled.
bool may_interpret(const CompileOptions& options, Making making) {
  return making == Making::kAny && env::interpreted_operations() > 0 && env::fusion() && !options.keep_text;
}

// `key`: the program's key on disk. For a trace of a `known` structure that needs no code, only planning is repeated.
void compile(const Wanted& wanted, CompileOptions& options, const ProgramKey& key, bool known, Program& program) {
  static metrics::Counter count("UncachedCompile");
  static metrics::Counter replanned("ReplannedProgram");
  static metrics::Counter promoted("PromotedProgram");
  static metrics::Counter handles("CreateCompileHandles");
  std::optional<ProgramFacts> facts;
  observer::Span span(observer::Phase::kCompile, options.device, operation_of(wanted.graph));
  span.set_detail(cause_text(wanted.cause));
  handles.add();
  std::string stored;
  bool needs_new_code = false;
  options.stored = key.empty() ? nullptr : &stored;
  options.needs_new_code = &needs_new_code;
  program.executable = engine().interpret(options);
  if (!program.executable) {
    needs_new_code = true; // unless the engine denies it
    program.executable = engine().compile_trace(wanted.graph, options);
  }
  if (wanted.making == Making::kPromoted) {
    span.set_replan();
    promoted.add();
  } else if (known && !needs_new_code) {
    span.set_replan();
    replanned.add();
  } else {
    count.add();
  }
  ProgramStore::get().put(key, stored);
  if (start_analysis()) {
    span.set_program(facts.emplace(wanted.trace, program, options.donated).get());
  }
}

// The program's executable: from the disk, or compiled.
void find_or_make_executable(
    const Wanted& wanted, CompileOptions options, const std::function<CompileReason()>& find_reason, Program& program) {
  static metrics::Metric new_shape("NewShapeCompileTime", metrics::Unit::kTime); // a part of CompileTime
  bool known = engine().reuses_code() && KnownStructures::get().add(wanted.structure, wanted.trace.key());
  options.interpretable = may_interpret(options, wanted.making) ? &wanted.graph : nullptr;
  options.often_interpreted = KnownStructures::get().interpreted(wanted.structure) >= env::interpreted_operations();
  // Dumps show the making of the program.
  ProgramKey key =
      options.keep_text || known ? ProgramKey() : ProgramStore::get().key_of(engine(), wanted.graph, wanted.structure, options);
  program.executable = ProgramStore::get().find(engine(), key, options);
  if (program.executable) {
    CompileHistory::get().add_restored(options.device, wanted.trace);
    return;
  }
  if (wanted.making == Making::kPromoted) { // its reason is the previous program's
    compile(wanted, options, key, known, program);
    return;
  }
  CompileReason reason = find_reason();
  if (env::debug_level() >= 1) {
    print_reason(wanted.trace, reason);
  }
  known = known || ProgramStore::get().teach(engine(), key);
  const int64_t start = metrics::now_ns();
  compile(wanted, options, key, known, program);
  if (reason.kind == CompileReason::Kind::kShape && !engine().reuses_code()) {
    new_shape.add(static_cast<double>(metrics::now_ns() - start));
  }
  CompileHistory::get().add(wanted.trace, reason);
}

// Runs of an interpreted program that add up to the variable's number of operations.
int64_t runs_of(const Graph& graph) {
  return env::interpreted_operations() / std::max<int64_t>(1, static_cast<int64_t>(graph.nodes.size()));
}

// Whether the found program runs once more; if not, a compiled one replaces it.
bool may_run(Program& program, SyncCause cause) {
  return !program.executable->is_interpreted() || (!is_settled(cause) && program.runs_left-- > 0);
}

} // namespace

FoundProgram find_or_compile(Trace& trace, const ValueBits& alive, SyncCause cause, std::optional<std::vector<bool>> donated) {
  static metrics::Counter hits("CachedCompile");
  static const bool moves_views = engine().moves_views();
  const int device = trace.device();
  Hash128 key = moves_views ? trace.key_without_offsets() : trace.key();
  CompileSettings settings = read_compile_settings(device);
  key.add(settings.hash());
  ProgramEntry& entry = program_cache(device).entry(key, trace.offsets());
  std::vector<uint64_t> offsets = entry.offsets.numbers(trace.offsets());
  Making making = is_settled(cause) ? Making::kCompiled : Making::kAny;
  if (Program* program = find_program(entry, alive, trace.scalar_bits())) {
    hits.add();
    if (may_run(*program, cause)) {
      return {*program, std::move(offsets)};
    }
    making = Making::kPromoted;
    std::erase_if(entry.programs, [](const Program& other) { return other.executable->is_interpreted(); });
  }
  auto find_reason = [&] { return CompileHistory::get().find(device, trace, entry, alive, cause_text(cause)); };
  entry.wanted.resize(alive.size(), 0);
  for (size_t i = 0; i < alive.size(); ++i) {
    entry.wanted[i] |= alive[i];
  }
  Graph graph = trace.graph();
  NumberGroups groups = KnownNumbers::get().find(trace);
  groups.apply(graph);
  entry.offsets.apply(graph);
  graph.outputs = list_values(entry.wanted);
  if (engine().orders_outputs()) {
    graph.output_strides = trace.orders_of(graph.outputs);
  }
  Program program{nullptr, graph.outputs, graph.output_strides, entry.wanted, std::move(groups)};
  const Wanted wanted{trace, graph, structure_of(graph), cause, making};
  find_or_make_executable(wanted, compile_options(trace, std::move(settings), std::move(donated)), find_reason, program);
  KnownNumbers::get().note(trace, program.groups);
  trace.num_programs += making != Making::kPromoted;
  program.runs_left = runs_of(graph);
  KnownStructures::get().add_program(wanted.structure, program.executable, graph);
  if (program.executable->is_interpreted()) {
    program_cache(device).make_room_for_interpreted(key);
  }
  entry.programs.push_back(std::move(program));
  return {entry.programs.back(), std::move(offsets)};
}

void forget_programs() {
  for (int device = 0; device < num_devices(); ++device) {
    auto lock = lock_recorder(device);
    program_cache(device).clear();
  }
}

static bool takes(const std::vector<std::shared_ptr<Trace>>& traces, const Trace* but, const Buffer& buffer) {
  return std::any_of(traces.begin(), traces.end(), [&](const auto& trace) {
    return trace.get() != but && !trace->empty() && trace->find_parameter(buffer) != kNoValue;
  });
}

std::vector<bool> find_donated(
    int device, const Trace* trace, const std::vector<BufferRef>& inputs, const std::vector<PreviousRef>& replaced) {
  std::vector<bool> donated(inputs.size()); // first: it may throw
  for (const PreviousRef& previous : replaced) {
    ++previous->buffer.get()->num_replaced;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Buffer& input = *inputs[i];
    const bool is_others = input.kept.load(std::memory_order_acquire) > input.num_replaced;
    donated[i] = input.owners.load(std::memory_order_acquire) == 0 && !is_others && !takes(device_state(device).traces, trace, input);
  }
  for (const PreviousRef& previous : replaced) {
    --previous->buffer.get()->num_replaced;
  }
  return donated;
}

std::string line_of(std::span<const int64_t> locations, int32_t node) {
  return node >= 0 && static_cast<size_t>(node) < locations.size() ? location_text(locations[static_cast<size_t>(node)]) : std::string();
}

const char* operation_of(const Graph& graph) {
  return Recorder::current().is_lazy() || graph.nodes.empty() ? "" : graph.nodes.back().op->name;
}

} // namespace torch_xla
