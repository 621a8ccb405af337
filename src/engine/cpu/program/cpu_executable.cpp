// Running a compiled program: the three kinds of step, library calls beside other steps, outputs.
#include "engine/cpu/program/cpu_executable.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/errors.h"
#include "core/memory_log.h"
#include "engine/cpu/copy_kernel.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/kernel_compiler.h"
#include "engine/cpu/program/step_span.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

observer::Phase phase_of(StepKind kind) {
  switch (kind) {
    case StepKind::kKernel:
      return observer::Phase::kKernel;
    case StepKind::kUpdate:
      return observer::Phase::kUpdate;
    default:
      return observer::Phase::kLibrary;
  }
}

constexpr int32_t kFirstRuns = 3; // a program that has run so often is not compiled for one step only

// Of a program that has not run yet. A loop may take any number of turns.
bool looks_short(const Plan& plan, int64_t work) {
  int64_t bytes = 0;
  for (const Memory& memory : plan.memory.memories) {
    bytes += memory.bytes;
  }
  const bool loops = std::any_of(plan.calls.begin(), plan.calls.end(), [](const LibraryStep& call) { return call.loop >= 0; });
  return !loops && bytes <= kSmallProgramBytes && work <= kSmallProgramWork;
}

// What the thread runs from here on: a transfer's processors belong to the steps beside it. Within a parallel region it holds to its end.
void use_one_thread() {
  at::get_num_threads(); // ATen makes its own setting in a thread's first call
  omp_set_num_threads(1);
}

// A call's results lie where the plan has room for them, or the call brings their memory.
std::vector<std::optional<LibraryCall>> prepare_calls(Plan& plan) {
  std::vector<std::optional<LibraryCall>> calls(plan.calls.size());
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const StepRef& ref = plan.steps[s];
    const bool is_call = ref.kind == StepKind::kLibrary || ref.kind == StepKind::kStart;
    if (!is_call || plan.calls.at(ref.index).loop >= 0) {
      continue;
    }
    LibraryStep& step = plan.calls[ref.index];
    const LibraryCall& call = calls.at(ref.index).emplace(step.call);
    for (int32_t result : step.results) {
      const Memory* memory = result < 0 ? nullptr : &plan.memory.memories.at(result);
      // Later calls may write into what one has brought.
      bool brought = memory && memory->home == Memory::Home::kAdopted && memory->first >= static_cast<int32_t>(s);
      XLA_ASSERT(!memory || brought != call.writes_into(), step.call.name, " was planned otherwise");
    }
    step.call = {};
  }
  return calls;
}

} // namespace

CpuExecutable::CpuExecutable(Plan plan, std::vector<Kernel> kernels, std::vector<Loop> loops, int device, std::string text)
    : device_(device),
      pool_(Pool::get(device)),
      plan_(std::move(plan)),
      kernels_(std::move(kernels)),
      calls_(prepare_calls(plan_)),
      loops_(std::move(loops)),
      text_(std::move(text)),
      pace_(plan_, calls_),
      memory_(plan_, find_read_packed(plan_, calls_), device),
      kept_(plan_, memory_, device),
      call_args_(plan_.calls.size()) {
  for (KernelStep& step : plan_.kernels) {
    step.numbers = {}; // of use on disk only
  }
  if (looks_short(plan_, pace_.known_work())) {
    usual_run_ns = 0;
  }
}

void CpuExecutable::run(RunArgs& args) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (first_runs_ < kFirstRuns && ++first_runs_ == kFirstRuns) {
    rest_kernel_compiler();
  }
  use_team(args.options.threads);
  struct Ending {
    CpuExecutable& executable;
    ~Ending() {
      executable.memory_.end();
      executable.kept_.end();
    }
  } ending{*this};
  memory_.start(args);
  try {
    pace_.run(std::exchange(args.options.tell, {}), [&](int32_t step) { return run_next(step, args); });
  } catch (...) {
    abandon_calls();
    memory_.restore(args);
    throw;
  }
  collect_outputs(args);
}

// The step, with those beside it. Returns the one behind.
int32_t CpuExecutable::run_next(int32_t begin, RunArgs& args) {
  const int32_t end = begin + 1 + plan_.steps[begin].beside;
  check_cancelled(args.options);
  memory_.commit_writes(begin, args);
  for (int32_t step = begin; step < end; ++step) {
    memory_.take(step, args);
  }
  end - begin > 1 ? run_beside(begin, end, args) : run_step(begin, args);
  for (int32_t step = begin; step < end; ++step) {
    memory_.release(step, args);
  }
  return end;
}

void CpuExecutable::check_cancelled(const RunOptions& options) const {
  XLA_CHECK(memory_.is_committed() || !options.is_cancelled(), kCancelled);
}

void CpuExecutable::run_step(int32_t number, RunArgs& args) {
  const StepRef& step = plan_.steps[number];
  if (step.kind == StepKind::kStart) {
    start_transfer(step, args.options);
    return;
  }
  StepSpan span(phase_of(step.kind), device_, step.name, step.location, args.options);
  switch (step.kind) {
    case StepKind::kKernel:
      plan_.kernels[step.index].keeps ? kept_.run(step.index, args, [&] { run_kernel(step.index, args); }) : run_kernel(step.index, args);
      break;
    case StepKind::kLibrary:
      span.set_bytes(plan_.calls[step.index].meeting_bytes);
      run_library(step.index, args);
      break;
    case StepKind::kUpdate:
      run_update(number);
      break;
    case StepKind::kStart:
      break;
    case StepKind::kWait:
      Transfers::get(device_).wait(call_args_[step.index].transfer);
      take_results(step.index);
      break;
  }
}

void CpuExecutable::run_kernel(int32_t index, const RunArgs& args) {
  const Kernel& kernel = kernels_[index];
  const KernelStep& step = plan_.kernels[index];
  if (step.units == 0) {
    return;
  }
  pointers_.resize(step.buffers.size());
  for (size_t i = 0; i < step.buffers.size(); ++i) {
    pointers_[i] = memory_.address(step.buffers[i]);
  }
  scalars_.resize(step.scalars.size());
  for (size_t i = 0; i < step.scalars.size(); ++i) {
    scalars_[i] = args.scalars[step.scalars[i]];
  }
  scalars_.insert(scalars_.end(), step.arguments.begin(), step.arguments.end());
  if (step.units <= step.grain) {
    kernel(pointers_.data(), scalars_.data(), 0, step.units);
    return;
  }
  share_out(step.units, step.grain, step.units / step.grain, [&](int64_t begin, int64_t end) {
    kernel(pointers_.data(), scalars_.data(), begin, end);
  });
}

void CpuExecutable::run_update(int32_t number) {
  const UpdateStep& step = plan_.updates[plan_.steps[number].index];
  char* base = memory_.address(step.base);
  char* result = memory_.address(step.result);
  if (base != result) {
    copy_strided(step.dtype, {step.elements}, result, {1}, base, {1});
  } else if (std::vector<Undo>* undo = memory_.undo_of(step.result.memory)) {
    save_view(number, *undo);
  }
  copy_strided(step.dtype, step.dims, memory_.address(step.view), step.view_strides, memory_.address(step.update), step.update_strides);
}

void CpuExecutable::save_view(int32_t number, std::vector<Undo>& undo) {
  const UpdateStep& step = plan_.updates[plan_.steps[number].index];
  BlockRef block = memory_.take_block(num_elements(step.dims) * static_cast<int64_t>(item_size(step.dtype)), number);
  Dims packed = contiguous_strides(step.dims);
  char* view = memory_.address(step.view);
  copy_strided(step.dtype, step.dims, block->data(), packed, view, step.view_strides);
  undo.push_back([&step, block, packed, view] { copy_strided(step.dtype, step.dims, view, step.view_strides, block->data(), packed); });
}

void CpuExecutable::prepare_call(int32_t index) {
  const LibraryStep& step = plan_.calls[index];
  CallArgs& args = call_args_[index];
  args.operands.resize(step.operands.size());
  for (size_t i = 0; i < step.operands.size(); ++i) {
    args.operands[i] = step.operands[i].memory < 0 ? nullptr : memory_.address(step.operands[i]);
  }
  args.results.clear();
  args.results.resize(step.results.size());
  bool adopts = !calls_[index] || !calls_[index]->writes_into(); // as loops do
  for (size_t i = 0; i < step.results.size() && !adopts; ++i) {
    args.results[i].data = memory_.base(step.results[i]);
  }
}

void CpuExecutable::take_results(int32_t index) {
  const LibraryStep& step = plan_.calls[index];
  bool adopts = !calls_[index] || !calls_[index]->writes_into();
  for (size_t i = 0; i < step.results.size() && adopts; ++i) {
    if (step.results[i] >= 0) {
      memory_.set_block(step.results[i], std::move(call_args_[index].results[i].block));
    }
  }
}

void CpuExecutable::run_library(int32_t index, const RunArgs& run) {
  prepare_call(index);
  CallArgs& args = call_args_[index];
  int32_t loop = plan_.calls[index].loop;
  const int32_t result = plan_.calls[index].results.empty() ? -1 : plan_.calls[index].results[0];
  if (loop < 0) {
    std::vector<Undo>* undo = result < 0 ? nullptr : memory_.undo_of(result);
    calls_[index]->run(pool_, args.operands, args.results, undo, kept_.find_packed(index, *calls_[index], args.operands, run));
  } else {
    loops_[loop].run(pool_, args.operands, args.results, run.options);
  }
  take_results(index);
}

// On a thread of a run, or of transfers: what it takes to call is prepared, and its results are left in call_args_.
void CpuExecutable::run_call(const StepRef& step, const RunOptions& options) {
  use_one_thread();
  StepSpan span(observer::Phase::kLibrary, device_, step.name, step.location, options);
  span.set_bytes(plan_.calls[step.index].meeting_bytes);
  CallArgs& args = call_args_[step.index];
  calls_[step.index]->run(pool_, args.operands, args.results);
}

// As many at a time as there are threads, on one each; those left over one by one, on all threads.
void CpuExecutable::run_beside(int32_t begin, int32_t end, RunArgs& args) {
  int32_t threads = at::get_num_threads();
  int32_t rest = threads > 1 ? end - (end - begin) % threads : begin;
  for (int32_t s = begin; s < rest; ++s) {
    prepare_call(plan_.steps[s].index);
  }
  std::atomic<int32_t> next{begin};
  auto run_some = [&, caller = memory_log::caller(device_)](int64_t, int64_t) {
    memory_log::CallerScope scope(caller);
    for (int32_t s = next++; s < rest; s = next++) {
      check_cancelled(args.options);
      run_call(plan_.steps[s], args.options);
    }
  };
  at::parallel_for(0, rest > begin ? threads : 0, 1, run_some);
  for (int32_t s = begin; s < rest; ++s) {
    take_results(plan_.steps[s].index);
  }
  for (int32_t s = rest; s < end; ++s) {
    check_cancelled(args.options);
    run_step(s, args);
  }
}

// The run ends after the transfer: it owns what the call refers to.
void CpuExecutable::start_transfer(const StepRef& step, const RunOptions& options) {
  prepare_call(step.index);
  call_args_[step.index].transfer = Transfers::get(device_).start([this, &step, options, caller = memory_log::caller(device_)] {
    memory_log::CallerScope scope(caller);
    run_call(step, options);
  });
}

// Of a run that has failed: the transfer under way uses its memory, and others may have brought results.
void CpuExecutable::abandon_calls() {
  Transfers::get(device_).finish();
  for (CallArgs& args : call_args_) {
    args.results.clear();
  }
}

void CpuExecutable::collect_outputs(RunArgs& args) {
  args.outputs.clear();
  for (const Output& output : plan_.outputs) {
    const Memory& memory = plan_.memory.memories[output.memory];
    if (output.is_input) {
      args.outputs.push_back(args.inputs[memory.parameter]);
      continue;
    }
    bool of_input = memory.home == Memory::Home::kParameter;
    BlockRef block = of_input ? cpu_buffer(args.inputs[memory.parameter]).block() : memory_.block(output.memory);
    args.outputs.push_back(std::make_shared<CpuBuffer>(output.type, output.strides, device_, std::move(block)));
  }
  args.inputs.clear();
}

int64_t CpuExecutable::code_bytes() const {
  int64_t bytes = 0;
  for (const Kernel& kernel : kernels_) {
    bytes += static_cast<int64_t>(kernel.bytes());
  }
  return bytes;
}

} // namespace torch_xla::cpu
