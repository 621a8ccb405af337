// The sync: alive values, program lookup, compile, enqueue.
#include "tensor/sync.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "core/env.h"
#include "core/errors.h"
#include "core/metrics.h"
#include "runtime/executor.h"
#include "runtime/interrupt.h"
#include "runtime/wait.h"
#include "tensor/api.h"
#include "tensor/program_cache.h"
#include "tensor/recorder.h"

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
  }
  return "";
}

ProgramCache& program_cache() {
  static auto* cache = new ProgramCache(env::program_cache_size());
  return *cache;
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

std::vector<ValueId> list_values(const ValueBits& bits) {
  std::vector<ValueId> values;
  for (size_t word = 0; word < bits.size(); ++word) {
    for (uint64_t rest = bits[word]; rest; rest &= rest - 1) {
      values.push_back(static_cast<ValueId>(word * 64 + static_cast<size_t>(__builtin_ctzll(rest))));
    }
  }
  return values;
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
std::string line_of(const std::vector<int64_t>& locations, int32_t node) {
  return node >= 0 && static_cast<size_t>(node) < locations.size() ? location_text(locations[static_cast<size_t>(node)]) : std::string();
}

// For an error of a run: the user's line of the node, or of the last node where it is not known (-1).
std::string describe(const std::vector<int64_t>& locations, int32_t node) {
  std::string line = line_of(locations, node);
  if (!line.empty()) {
    return "\n" + line;
  }
  line = line_of(locations, static_cast<int32_t>(locations.size()) - 1);
  return line.empty() ? line : "\nin the program whose last operation is at " + line;
}

void explain_compile(const Trace& trace, const ProgramEntry& entry, SyncCause cause) {
  std::string why = entry.programs.empty() ? "this trace was not seen before" : "the trace is known, but other values are alive at its end";
  env::debug_print(
      "compile",
      str(why,
          "\n  cause of the sync: ",
          cause_text(cause),
          "\n  nodes: ",
          trace.graph().nodes.size(),
          ", parameters: ",
          trace.graph().parameters.size(),
          ", key: ",
          trace.key().hex()));
}

CompileOptions compile_options(Trace& trace, const Precision& precision) {
  CompileOptions options;
  options.precision = precision;
  options.donated = find_donated(trace.inputs());
  options.location = [&trace](int32_t node) { return line_of(trace.locations(), node); };
  options.poll = &interrupt::poll;
  options.keep_text = env::debug_level() >= 3;
  return options;
}

const Program& compile(Trace& trace, ProgramEntry& entry, const Precision& precision, SyncCause cause) {
  static metrics::Metric time("CompileTime", metrics::Unit::kTime);
  static metrics::Counter count("UncachedCompile");
  metrics::Timed timed(time);
  count.add();
  if (env::debug_level() >= 1) {
    explain_compile(trace, entry, cause);
  }
  Graph graph = trace.graph();
  graph.outputs = list_values(entry.wanted);
  Program program{nullptr, graph.outputs, entry.wanted};
  program.executable = engine().compile(engine().lower(graph), compile_options(trace, precision));
  entry.programs.push_back(std::move(program));
  return entry.programs.back();
}

const Program& find_or_compile(Trace& trace, const ValueBits& alive, SyncCause cause) {
  static metrics::Counter hits("CachedCompile");
  Hash128 key = trace.key();
  Precision precision = read_precision();
  key.add(uint64_t{env::fusion()} << 24 | precision.products << 16 | precision.convolutions << 8 | precision.cuda_convolutions);
  ProgramEntry& entry = program_cache().entry(key);
  if (const Program* program = find_program(entry, alive)) {
    hits.add();
    return *program;
  }
  entry.wanted.resize(alive.size(), 0);
  for (size_t i = 0; i < alive.size(); ++i) {
    entry.wanted[i] |= alive[i];
  }
  return compile(trace, entry, precision, cause);
}

bool is_set(const ValueBits& bits, ValueId v) {
  return (bits[static_cast<size_t>(v) / 64] >> (v % 64)) & 1;
}

// A buffer for each output that is alive; null for the program's extra ones.
std::vector<BufferRef> make_outputs(Trace& trace, const std::vector<ValueId>& outputs, const ValueBits& alive) {
  std::vector<BufferRef> buffers(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (is_set(alive, outputs[i])) {
      buffers[i] = std::make_shared<Buffer>(trace.graph().type(outputs[i]), Dims());
      trace.lazies()[outputs[i]]->set_buffer(buffers[i]);
    }
  }
  return buffers;
}

// The values of the pending trace fail with the error in flight. The caller holds the recording lock.
void drop_trace() {
  Trace& trace = recorder().trace;
  bool any = false;
  ValueBits alive = alive_values(trace, &any);
  for (const BufferRef& buffer : make_outputs(trace, list_values(alive), alive)) {
    buffer->set_failed(std::current_exception());
  }
  wait::notify();
  trace.clear();
}

void enqueue(Trace& trace, const Program& program, const ValueBits& alive) {
  static metrics::Metric aliases("InputOutputAliasCount", metrics::Unit::kNumber);
  static metrics::Counter executed("ExecuteComputation");
  program.executable->prepare_caller();
  Run run;
  run.executable = program.executable;
  run.outputs = make_outputs(trace, program.outputs, alive);
  run.scalars = std::move(trace.scalars());
  run.inputs = std::move(trace.inputs());
  run.donated = find_donated(run.inputs);
  run.replaced = std::move(trace.replaced());
  run.restored = find_restored(trace, run);
  run.describe = [locations = std::move(trace.locations())](int32_t node) { return describe(locations, node); };
  run.options.threads = at::get_num_threads();
  aliases.add(static_cast<double>(std::count(run.donated.begin(), run.donated.end(), true)));
  executed.add();
  Executor::get().enqueue(std::move(run));
}

} // namespace

void sync_locked(SyncCause cause) {
  static metrics::Metric size("TensorsGraphSize", metrics::Unit::kNumber);
  RecorderState& state = recorder();
  Trace& trace = state.trace;
  state.next_check = kFirstTraceCheck;
  state.cut_planned = false;
  state.wants_cut.store(!env::lazy(), std::memory_order_relaxed);
  bool any = false;
  ValueBits alive = alive_values(trace, &any);
  if (!any) {
    trace.clear();
    return;
  }
  if (env::debug_level() >= 2) {
    env::debug_print("trace", print_graph(trace.graph()));
  }
  size.add(static_cast<double>(trace.graph().nodes.size()));
  try {
    check_inputs(trace);
    enqueue(trace, find_or_compile(trace, alive, cause), alive);
  } catch (const interrupt::Interrupted&) {
    throw; // before anything has run: the trace stays pending
  } catch (...) {
    drop_trace();
    throw;
  }
  trace.clear();
}

void settle_after_error() {
  Executor::get().settle(std::current_exception());
  auto lock = lock_recorder();
  try {
    check_inputs(recorder().trace);
  } catch (...) {
    drop_trace();
  }
}

void sync(int /*device*/, bool wait) {
  try {
    interrupt::retry([] {
      auto lock = lock_recorder();
      sync_locked(SyncCause::kUser);
    });
    Executor::get().wait_for_room();
    wait ? Executor::get().drain() : Executor::get().check_news();
  } catch (...) {
    settle_after_error();
    throw;
  }
}

void wait_device_ops() {
  try {
    Executor::get().drain();
  } catch (...) {
    settle_after_error();
    throw;
  }
}

std::string pending_graph_text() {
  auto lock = lock_recorder();
  return print_graph(recorder().trace.graph());
}

int64_t live_nodes() {
  auto lock = lock_recorder();
  return static_cast<int64_t>(recorder().trace.graph().nodes.size());
}

} // namespace torch_xla
