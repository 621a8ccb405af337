// Steps of a program that are library calls, at once or beside other steps.
#include <ATen/Parallel.h>
#include <omp.h>

#include <atomic>

#include "core/memory_log.h"
#include "core/observer.h"
#include "core/step_line.h"
#include "engine/cpu/program/cpu_executable.h"

namespace torch_xla::cpu {
namespace {

// Makes the thread run on one thread from now on: a transfer's processors belong to the steps beside it. Within a parallel region this
// holds until its end.
void use_one_thread() {
  at::get_num_threads(); // ATen makes its own setting in a thread's first call
  omp_set_num_threads(1);
}

} // namespace

void CpuExecutable::prepare_call(int32_t index) {
  const LibraryStep& step = plan_.calls[index];
  CallArgs& args = call_args_[index];
  args.operands.resize(step.operands.size());
  for (size_t i = 0; i < step.operands.size(); ++i) {
    args.operands[i] = step.operands[i].memory < 0 ? nullptr : address(step.operands[i]);
  }
  args.results.clear();
  args.results.resize(step.results.size());
  bool adopts = !calls_[index] || !calls_[index]->writes_into(); // as loops do
  for (size_t i = 0; i < step.results.size() && !adopts; ++i) {
    args.results[i].data = base_[step.results[i]];
  }
}

void CpuExecutable::take_results(int32_t index) {
  const LibraryStep& step = plan_.calls[index];
  bool adopts = !calls_[index] || !calls_[index]->writes_into();
  for (size_t i = 0; i < step.results.size() && adopts; ++i) {
    if (step.results[i] >= 0) {
      base_[step.results[i]] = static_cast<char*>(call_args_[index].results[i].data);
      blocks_[step.results[i]] = std::move(call_args_[index].results[i].block);
    }
  }
}

void CpuExecutable::run_library(int32_t index, const RunArgs& run) {
  prepare_call(index);
  CallArgs& args = call_args_[index];
  int32_t loop = plan_.calls[index].loop;
  const int32_t result = plan_.calls[index].results.empty() ? -1 : plan_.calls[index].results[0];
  std::vector<Undo>* undo = result >= 0 && saves_[result] && !committed_ ? &undo_ : nullptr;
  if (loop < 0) {
    calls_[index]->run(pool_, args.operands, args.results, undo, find_packed(index, run));
  } else {
    loops_[loop].run(pool_, args.operands, args.results, run.options);
  }
  take_results(index);
}

// Runs on a run's thread or the transfers' thread: the arguments are ready, and results go to call_args_.
void CpuExecutable::run_call(const StepRef& step, const RunOptions& options) {
  use_one_thread();
  const StepLine line(line_of(step, options));
  observer::Span span(observer::Phase::kLibrary, device_, step.name, StepLine::current());
  span.set_run(options.number);
  span.set_node(step.location);
  span.set_bytes(plan_.calls[step.index].meeting_bytes);
  CallArgs& args = call_args_[step.index];
  calls_[step.index]->run(pool_, args.operands, args.results);
}

// Rounds of one call per thread; the remaining calls one by one, each on all threads.
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

// The run ends after the transfer, so the call's references stay valid.
void CpuExecutable::start_transfer(const StepRef& step, const RunOptions& options) {
  prepare_call(step.index);
  call_args_[step.index].transfer = Transfers::get(device_).start([this, &step, options, caller = memory_log::caller(device_)] {
    memory_log::CallerScope scope(caller);
    run_call(step, options);
  });
}

// After a failed run: the current transfer uses its memory, and earlier ones may have left results.
void CpuExecutable::abandon_calls() {
  Transfers::get(device_).finish();
  for (CallArgs& args : call_args_) {
    args.results.clear();
  }
}

} // namespace torch_xla::cpu
