// The sync: alive values, program lookup, compile, enqueue.
#include "program/sync.h"

#include <new>
#include <optional>

#include "core/env.h"
#include "core/errors.h"
#include "core/metrics.h"
#include "core/observer.h"
#include "engine/engine.h"
#include "program/analysis.h"
#include "program/donation.h"
#include "program/pending_graph.h"
#include "program/program.h"
#include "program/program_run.h"
#include "runtime/executor.h"
#include "runtime/interrupt.h"
#include "runtime/wait.h"
#include "trace/recorder.h"
#include "trace/shards.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

constexpr auto kDropLimit = std::chrono::seconds(1); // for the recording lock, in a thread with an error for the user
constexpr const char* kCauseTexts[kNumSyncCauses] = { // in the order of SyncCause; the original's words if it has the cause
    "user torch_xla.sync",
    "torch_xla.sync after the optimizer's step",
    "torch_xla.sync in parallel loader at step end",
    "torch_xla.sync when exiting a profiler StepTrace region",
    "torch_xla.compile",
    "torch_xla.compile clear the pending graph prior calling the target function",
    "user code trying to access tensor value before torch_xla.sync",
    "the trace was cut at a repeat of its loop",
    "XLA_LAZY=0",
    "other replicas may wait for a collective",
    "torch.accelerator.Graph.replay"};

ValueBits alive_values(const Trace& trace, bool* any) {
  size_t values = trace.graph().values.size();
  ValueBits bits((values + 63) / 64, 0);
  *any = false;
  for (size_t i = 0; i < values; ++i) {
    if (trace.is_alive(static_cast<ValueId>(i))) {
      bits[i / 64] |= uint64_t{1} << (i % 64);
      *any = true;
    }
  }
  return bits;
}

// By input: whether it is donated and the previous content of a tensor with a new value here.
std::vector<bool> find_restored(Trace& trace, const std::vector<bool>& donated) {
  std::vector<bool> restored(donated.size());
  for (const PreviousRef& previous : trace.replaced()) {
    if (ValueId parameter = trace.find_parameter(*previous->buffer.get()); parameter != kNoValue) {
      auto input = static_cast<size_t>(trace.graph().values[parameter].index);
      restored[input] = donated[input];
    }
  }
  return restored;
}

// Throws the error of an input lost after recording.
void check_inputs(Trace& trace) {
  for (const BufferRef& input : trace.inputs()) {
    if (input->state() == Buffer::State::kFailed) {
      input->wait_uninterrupted();
    }
  }
}

// Appends a buffer for each alive output; null for the program's extra ones.
void make_outputs(Trace& trace, const Program& program, const ValueBits& alive, std::vector<BufferRef>& buffers) {
  buffers.resize(program.outputs.size());
  const std::vector<bool> shards = engine().num_partitions() > 1 ? find_shards(trace) : std::vector<bool>();
  for (size_t i = 0; i < buffers.size(); ++i) {
    const ValueId v = program.outputs[i];
    if (has_value(alive, v)) {
      buffers[i] = make_output(program, i, trace.graph().type(v));
      buffers[i]->is_shard = !shards.empty() && shards[static_cast<size_t>(v)];
      trace.lazies()[v]->set_buffer(buffers[i]);
    }
  }
}

void report_trace(const Trace& trace, int64_t end_ns) {
  observer::report(
      {.phase = observer::Phase::kTrace,
       .start_ns = trace.start_ns(),
       .end_ns = end_ns,
       .device = trace.device(),
       .nodes = static_cast<int64_t>(trace.graph().nodes.size())});
}

// Fails the values of the pending trace with the current error. The caller holds the recording lock.
void drop(Trace& trace) {
  bool any = false;
  ValueBits alive = alive_values(trace, &any);
  Program none;
  none.outputs = list_values(alive);
  std::vector<BufferRef> buffers;
  make_outputs(trace, none, alive, buffers);
  for (const BufferRef& buffer : buffers) {
    buffer->set_failed(std::current_exception());
  }
  wait::notify();
  trace.clear();
}

FoundProgram find_within_memory(Trace& trace, const ValueBits& alive, SyncCause cause) {
  try {
    FoundProgram found = find_or_compile(trace, alive, cause);
    if (saves_graphs()) {
      save_output_shardings(trace.device(), trace, found.program);
    }
    return found;
  } catch (const std::bad_alloc&) {
    throw UserError(ErrorKind::OutOfMemory, "no memory left to compile a program");
  }
}

uint64_t enqueue(Trace& trace, const FoundProgram& found, const ValueBits& alive, int64_t sync_ns) {
  std::unique_ptr<Run> run = new_run(trace.device(), found.program);
  run->operation = operation_of(trace.graph());
  make_outputs(trace, found.program, alive, run->outputs);
  RunArgs& args = run->args;
  found.program.groups.take(trace.scalar_bits(), args.scalars);
  args.scalars.insert(args.scalars.end(), found.offsets.begin(), found.offsets.end());
  args.donated = find_donated(trace.device(), &trace, trace.inputs(), trace.replaced());
  const bool may_be_repeated = run->executable->checks_values() && !trace.has_collectives();
  args.restored = may_be_repeated ? args.donated : find_restored(trace, args.donated);
  std::swap(run->inputs, trace.inputs()); // the trace goes on with the memory of a run that has ended
  std::swap(run->replaced, trace.replaced());
  std::swap(run->lines, trace.locations());
  run->waits_for_others = trace.has_collectives();
  if (may_be_repeated) {
    run->recorded = trace.take_recorded(found.program.outputs, found.program.output_strides);
  }
  ++trace.num_runs;
  return hand_over(trace.device(), std::move(run), sync_ns);
}

// Drops traces that read a lost value. If another thread compiles meanwhile, their own syncs report it.
void drop_lost(int device) {
  auto lock = lock_recorder_uninterrupted(device, kDropLimit);
  if (!lock) {
    return;
  }
  for (const auto& trace : device_state(device).traces) {
    try {
      check_inputs(*trace);
    } catch (...) {
      drop(*trace);
    }
  }
}

// Syncs the traces of the calling thread and of ended threads. The caller holds the recording lock.
void sync_own(int device, SyncCause cause) {
  sync_locked(Recorder::current().trace(device), cause);
  for (const auto& trace : device_state(device).traces) {
    if (trace->is_left && !trace->empty()) {
      sync_locked(*trace, cause);
    }
  }
}

} // namespace

const char* cause_text(SyncCause cause) {
  return kCauseTexts[static_cast<size_t>(cause)];
}

std::string& graph_name() {
  thread_local std::string name;
  return name;
}

void sync_locked(Trace& trace, SyncCause cause) {
  static metrics::Metric size("TensorsGraphSize", metrics::Unit::kNumber);
  const int device = trace.device();
  XLA_CHECK(
      !trace.is_captured(),
      "nothing runs while the body of a loop or a step to be replayed is recorded: it needs the value of a tensor (.item(), print, "
      "a branch on a tensor, an operation that runs on the CPU), or it syncs");
  trace.cut().start_again();
  bool any = false;
  ValueBits alive = alive_values(trace, &any);
  if (!any && !trace.has_collectives()) {
    trace.clear();
    return;
  }
  if (env::debug_level() >= 2) {
    env::debug_print("trace", print_graph(trace.graph()));
  }
  Executor::get(device).start(); // if that fails the trace stays pending
  const int64_t start_ns = metrics::now_ns();
  size.add(static_cast<double>(trace.graph().nodes.size()), start_ns);
  report_trace(trace, start_ns);
  const bool analyzes = start_analysis();
  if (saves_graphs()) {
    save_graph(device, trace, list_values(alive));
  }
  std::optional<ProgramFacts> facts;
  observer::Span span(
      {.phase = observer::Phase::kSync,
       .name = cause_text(cause),
       .start_ns = start_ns,
       .line = observed_location(observer::Phase::kSync),
       .device = device});
  try {
    check_inputs(trace);
    GivenAway given(device_state(device), trace.inputs(), cause);
    const FoundProgram found = find_within_memory(trace, alive, cause);
    if (analyzes) {
      span.set_program(facts.emplace(trace, found.program, find_donated(device, &trace, trace.inputs(), trace.replaced())).get());
    }
    span.set_run(enqueue(trace, found, alive, start_ns));
    given.keep();
  } catch (const interrupt::Interrupted&) {
    throw; // nothing has run: the trace stays pending
  } catch (...) {
    drop(trace);
    throw;
  }
  trace.clear();
}

void cut_long_trace(Recorder& recorder, int device) {
  bool cut = interrupt::retry([device, &recorder] {
    auto lock = lock_recorder(device);
    Trace& trace = recorder.trace(device);
    if (trace.is_captured()) {
      return false;
    }
    const bool is_lazy = recorder.is_lazy();
    if (!is_cut_now(trace, is_lazy)) {
      trace.cut().wanted.store(is_due(trace), std::memory_order_relaxed);
      return false;
    }
    sync_locked(trace, is_lazy ? SyncCause::kCut : SyncCause::kEager);
    return true;
  });
  if (cut) {
    Executor::get(device).wait_for_room();
  }
}

void settle_after_error(int device) {
  std::vector<int> settled = Executor::get(device).settle(std::current_exception());
  std::for_each(settled.begin(), settled.end(), drop_lost);
}

void sync(int device, bool wait, SyncCause cause) {
  check_device(device);
  Executor& executor = Executor::get(device);
  try {
    bool captured = interrupt::retry([device, wait, cause] {
      const Executor::ShortRuns run_here(device, wait);
      auto lock = lock_recorder(device);
      if (!wait && Recorder::current().trace(device).is_step()) {
        return true; // a captured step is one program: ends of steps within it run nothing
      }
      sync_own(device, cause);
      return false;
    });
    if (captured) {
      return;
    }
    observer::Span span(observer::Phase::kWait, device);
    executor.wait_for_room();
    wait ? executor.drain() : executor.check_news();
  } catch (...) {
    settle_after_error(device);
    throw;
  }
}

void mark_step(int device, bool wait, SyncCause cause) {
  static metrics::Counter count("MarkStep");
  count.add();
  sync(device, wait || env::flag(env::variable("XLA_SYNC_WAIT")), cause);
}

void sync_collectives(int device) {
  try {
    interrupt::retry([device] {
      auto lock = lock_recorder(device);
      for (const auto& trace : device_state(device).traces) {
        if (trace->has_collectives()) {
          sync_locked(*trace, SyncCause::kCollective);
        }
      }
    });
  } catch (...) {
    settle_after_error(device);
    throw;
  }
}

std::optional<std::pair<uint64_t, size_t>> pending_collectives(int device) {
  auto lock = lock_recorder(device);
  for (const auto& trace : device_state(device).traces) {
    if (trace->has_collectives()) {
      return std::pair(trace->generation(), trace->graph().nodes.size());
    }
  }
  return std::nullopt;
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

} // namespace torch_xla
