// The sync: alive values, program lookup, compile, enqueue.
#include "tensor/sync.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "core/env.h"
#include "core/errors.h"
#include "core/metrics.h"
#include "core/observer.h"
#include "engine/program_store.h"
#include "runtime/executor.h"
#include "runtime/interrupt.h"
#include "runtime/wait.h"
#include "tensor/api.h"
#include "tensor/compile_reason.h"
#include "tensor/program_cache.h"
#include "tensor/recorder.h"
#include "tensor/source_line.h"

namespace torch_xla {
namespace {

const char* cause_text(SyncCause cause) {
  switch (cause) {
    case SyncCause::kUser:
      return "user torch_xla.sync";
    case SyncCause::kRead:
      return "user code read a value";
    case SyncCause::kCut:
      return "the trace was cut at a repeat of its loop";
    case SyncCause::kEager:
      return "XLA_LAZY=0";
    case SyncCause::kCollective:
      return "other replicas may wait for a collective";
  }
  return "";
}

ProgramCache& program_cache(int device) {
  static auto* caches = new std::vector<ProgramCache>(kMaxDevices, ProgramCache(env::program_cache_size()));
  return (*caches)[static_cast<size_t>(device)];
}

// Bits of the values that a cell refers to.
ValueBits alive_values(Trace& trace, bool* any) {
  const std::vector<LazyValue*>& lazies = trace.lazies();
  ValueBits bits((lazies.size() + 63) / 64, 0);
  *any = false;
  for (size_t i = 0; i < lazies.size(); ++i) {
    if (lazies[i] && lazies[i]->refs() > 1) {
      bits[i / 64] |= uint64_t{1} << (i % 64);
      *any = true;
    }
  }
  return bits;
}

Precision::Level read_level(at::Float32Backend backend, at::Float32Op op) {
  switch (at::globalContext().float32Precision(backend, op)) {
    case at::Float32Precision::BF16:
      return Precision::kDefault;
    case at::Float32Precision::TF32:
    case at::Float32Precision::DEFAULT: // cuDNN's
      return Precision::kHigh;
    default:
      return Precision::kHighest;
  }
}

// torch.set_float32_matmul_precision sets those of both backends: "medium" is BF16 in the one and TF32 in the other.
Precision read_precision() {
  using at::Float32Backend;
  using at::Float32Op;
  return {
      std::min(read_level(Float32Backend::MKLDNN, Float32Op::MATMUL), read_level(Float32Backend::CUDA, Float32Op::MATMUL)),
      read_level(Float32Backend::MKLDNN, Float32Op::CONV),
      read_level(Float32Backend::CUDA, Float32Op::CONV)};
}

// A buffer that no lazy value refers to any more is the run's alone.
std::vector<bool> find_donated(const std::vector<BufferRef>& inputs) {
  std::vector<bool> donated(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    donated[i] = inputs[i]->owners.load(std::memory_order_acquire) == 0;
  }
  return donated;
}

// What tensors held that have new values in this trace.
std::vector<bool> find_restored(const Trace& trace, const Run& run) {
  std::vector<bool> restored(run.inputs.size());
  for (const PreviousRef& previous : run.replaced) {
    if (previous->buffer->trace_generation == trace.generation()) {
      auto input = static_cast<size_t>(trace.graph().values[previous->buffer->trace_value].index);
      restored[input] = run.donated[input];
    }
  }
  return restored;
}

// Throws the error of an input that was lost after it was recorded.
void check_inputs(Trace& trace) {
  for (const BufferRef& input : trace.inputs()) {
    if (input->state() == Buffer::State::kFailed) {
      input->wait_uninterrupted();
    }
  }
}

// The user's line of a node of the trace.
std::string line_of(std::span<const int64_t> locations, int32_t node) {
  return node >= 0 && static_cast<size_t>(node) < locations.size() ? location_text(locations[static_cast<size_t>(node)]) : std::string();
}

// For an error of a run: the user's line of the node, or of the last node where it is not known (-1).
std::string describe(std::span<const int64_t> locations, int32_t node) {
  std::string line = line_of(locations, node);
  if (!line.empty()) {
    return "\n" + line;
  }
  line = line_of(locations, static_cast<int32_t>(locations.size()) - 1);
  return line.empty() ? line : "\nin the program whose last operation is at " + line;
}

void print_reason(const Trace& trace, const CompileReason& reason) {
  const Graph& graph = trace.graph();
  env::debug_print(
      "compile",
      str(reason_text(reason), "\n  nodes: ", graph.nodes.size(), ", parameters: ", graph.parameters.size(), ", key: ", trace.key().hex()));
}

CompileOptions compile_options(int device, Trace& trace, const Precision& precision) {
  CompileOptions options;
  options.device = device;
  options.precision = precision;
  options.donated = find_donated(trace.inputs());
  options.location = [&trace](int32_t node) { return line_of(trace.locations(), node); };
  options.poll = &interrupt::poll;
  options.keep_text = env::debug_level() >= 3;
  return options;
}

// For events: in eager mode a trace is one operation, whose last node is its own.
const char* operation_of(const Graph& graph) {
  return env::lazy() || graph.nodes.empty() ? "" : graph.nodes.back().op->name;
}

// `key`: by which the program is put on disk.
std::shared_ptr<Executable> compile(const Graph& graph, CompileOptions& options, const std::string& key) {
  static metrics::Counter count("UncachedCompile");
  observer::Span span(observer::Phase::kCompile, options.device, operation_of(graph));
  count.add();
  std::string stored;
  options.stored = key.empty() ? nullptr : &stored;
  std::shared_ptr<Executable> executable = engine().compile_trace(graph, options);
  ProgramStore::get().put(key, stored);
  return executable;
}

// From the disk, or compiled.
std::shared_ptr<Executable> make_program(
    Trace& trace, const Graph& graph, CompileOptions options, const std::function<CompileReason()>& find_reason) {
  // Dumps show how the program is made.
  std::string key = options.keep_text ? std::string() : ProgramStore::get().key_of(engine(), graph, options);
  if (std::shared_ptr<Executable> executable = ProgramStore::get().find(engine(), key, options)) {
    CompileHistory::get().add_restored(options.device, trace);
    return executable;
  }
  CompileReason reason = find_reason();
  if (env::debug_level() >= 1) {
    print_reason(trace, reason);
  }
  std::shared_ptr<Executable> executable = compile(graph, options, key);
  CompileHistory::get().add(trace, reason);
  return executable;
}

const Program& find_or_compile(int device, Trace& trace, const ValueBits& alive, SyncCause cause) {
  static metrics::Counter hits("CachedCompile");
  Hash128 key = trace.key();
  Precision precision = read_precision();
  key.add(uint64_t{env::fusion()} << 24 | precision.products << 16 | precision.convolutions << 8 | precision.cuda_convolutions);
  ProgramEntry& entry = program_cache(device).entry(key);
  if (const Program* program = find_program(entry, alive)) {
    hits.add();
    return *program;
  }
  auto find_reason = [&] { return CompileHistory::get().find(device, trace, entry, alive, cause_text(cause)); };
  entry.wanted.resize(alive.size(), 0);
  for (size_t i = 0; i < alive.size(); ++i) {
    entry.wanted[i] |= alive[i];
  }
  Graph graph = trace.graph();
  graph.outputs = list_values(entry.wanted);
  std::shared_ptr<Executable> executable = make_program(trace, graph, compile_options(device, trace, precision), find_reason);
  entry.programs.push_back({std::move(executable), graph.outputs, entry.wanted});
  return entry.programs.back();
}

// A buffer for each output that is alive; null for the program's extra ones.
std::vector<BufferRef> make_outputs(Trace& trace, const std::vector<ValueId>& outputs, const ValueBits& alive) {
  std::vector<BufferRef> buffers(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (has_value(alive, outputs[i])) {
      buffers[i] = std::make_shared<Buffer>(trace.graph().type(outputs[i]), Dims());
      trace.lazies()[outputs[i]]->set_buffer(buffers[i]);
    }
  }
  return buffers;
}

void report_trace(int device, const Trace& trace) {
  observer::report(
      {.phase = observer::Phase::kTrace,
       .start_ns = trace.start_ns(),
       .end_ns = metrics::now_ns(),
       .device = device,
       .nodes = static_cast<int64_t>(trace.graph().nodes.size())});
}

// The values of the pending trace fail with the error in flight. The caller holds the recording lock.
void drop(Trace& trace) {
  bool any = false;
  ValueBits alive = alive_values(trace, &any);
  for (const BufferRef& buffer : make_outputs(trace, list_values(alive), alive)) {
    buffer->set_failed(std::current_exception());
  }
  wait::notify();
  trace.clear();
}

uint64_t enqueue(int device, Trace& trace, const Program& program, const ValueBits& alive) {
  static metrics::Metric aliases("InputOutputAliasCount", metrics::Unit::kNumber);
  static metrics::Counter executed("ExecuteComputation");
  program.executable->prepare_caller();
  Run run;
  run.operation = operation_of(trace.graph());
  run.executable = program.executable;
  run.outputs = make_outputs(trace, program.outputs, alive);
  run.scalars = std::move(trace.scalars());
  run.inputs = std::move(trace.inputs());
  run.donated = find_donated(run.inputs);
  run.replaced = std::move(trace.replaced());
  run.restored = find_restored(trace, run);
  run.lines = std::move(trace.locations());
  run.describe = &describe;
  run.options.threads = at::get_num_threads();
  aliases.add(static_cast<double>(std::count(run.donated.begin(), run.donated.end(), true)));
  executed.add();
  return Executor::get(device).enqueue(std::move(run));
}

// Drops a trace that takes a value which was lost.
void drop_if_lost(int device) {
  auto lock = lock_recorder(device);
  Trace& trace = recorder(device).trace;
  try {
    check_inputs(trace);
  } catch (...) {
    drop(trace);
  }
}

} // namespace

void sync_locked(int device, SyncCause cause) {
  static metrics::Metric size("TensorsGraphSize", metrics::Unit::kNumber);
  RecorderState& state = recorder(device);
  XLA_CHECK(
      !state.capture,
      "nothing runs while the body of a loop is recorded: it needs the value of a tensor (.item(), print, a branch on a tensor, an "
      "operation "
      "that runs on the CPU), or it syncs");
  Trace& trace = state.trace;
  state.next_check = kFirstTraceCheck;
  state.cut_planned = false;
  state.wants_cut.store(!env::lazy(), std::memory_order_relaxed);
  bool any = false;
  ValueBits alive = alive_values(trace, &any);
  if (!any && !trace.has_collectives()) {
    trace.clear();
    return;
  }
  if (env::debug_level() >= 2) {
    env::debug_print("trace", print_graph(trace.graph()));
  }
  size.add(static_cast<double>(trace.graph().nodes.size()));
  report_trace(device, trace);
  observer::Span span(observer::Phase::kSync, device, cause_text(cause), observed_location(observer::Phase::kSync));
  try {
    check_inputs(trace);
    span.set_run(enqueue(device, trace, find_or_compile(device, trace, alive, cause), alive));
  } catch (const interrupt::Interrupted&) {
    throw; // before anything has run: the trace stays pending
  } catch (...) {
    drop(trace);
    throw;
  }
  trace.clear();
}

void settle_after_error(int device) {
  std::vector<int> settled = Executor::get(device).settle(std::current_exception());
  std::for_each(settled.begin(), settled.end(), drop_if_lost);
}

void sync(int device, bool wait) {
  check_device(device);
  Executor& executor = Executor::get(device);
  try {
    interrupt::retry([device] {
      auto lock = lock_recorder(device);
      sync_locked(device, SyncCause::kUser);
    });
    observer::Span span(observer::Phase::kWait, device);
    executor.wait_for_room();
    wait ? executor.drain() : executor.check_news();
  } catch (...) {
    settle_after_error(device);
    throw;
  }
}

void sync_collectives(int device) {
  try {
    interrupt::retry([device] {
      auto lock = lock_recorder(device);
      if (recorder(device).trace.has_collectives()) {
        sync_locked(device, SyncCause::kCollective);
      }
    });
  } catch (...) {
    settle_after_error(device);
    throw;
  }
}

std::optional<std::pair<uint64_t, size_t>> pending_collectives(int device) {
  auto lock = lock_recorder(device);
  const Trace& trace = recorder(device).trace;
  return trace.has_collectives() ? std::make_optional(std::pair(trace.generation(), trace.graph().nodes.size())) : std::nullopt;
}

void wait_device_ops(int device) {
  check_device(device);
  try {
    Executor::get(device).drain();
  } catch (...) {
    settle_after_error(device);
    throw;
  }
}

std::string pending_graph_text(int device) {
  check_device(device);
  auto lock = lock_recorder(device);
  return print_graph(recorder(device).trace.graph());
}

int64_t live_nodes() {
  int64_t nodes = 0;
  for (int device = 0; device < num_devices(); ++device) {
    auto lock = lock_recorder(device);
    nodes += static_cast<int64_t>(recorder(device).trace.graph().nodes.size());
  }
  return nodes;
}

} // namespace torch_xla
