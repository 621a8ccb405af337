// Steps of a program that are library calls, at once or beside other steps.
#include <ATen/Parallel.h>
#include <omp.h>

#include "core/memory_log.h"
#include "core/observer.h"
#include "engine/cpu/program/cpu_executable.h"

namespace torch_xla::cpu {
namespace {

// The processors belong to the steps beside a transfer. The setting is the thread's own, once ATen has made its own.
void use_one_thread() {
  thread_local const bool is_set = (at::get_num_threads(), omp_set_num_threads(1), true);
  (void)is_set;
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

void CpuExecutable::run_library(int32_t index, const RunOptions& options) {
  prepare_call(index);
  CallArgs& args = call_args_[index];
  int32_t loop = plan_.calls[index].loop;
  loop < 0 ? calls_[index]->run(pool_, args.operands, args.results) : loops_[loop].run(pool_, args.operands, args.results, options);
  take_results(index);
}

// The run ends after the transfer, so that what the call refers to lives.
void CpuExecutable::start_transfer(const StepRef& step, const RunOptions& options) {
  prepare_call(step.index);
  auto node = static_cast<size_t>(step.location);
  int64_t line = node < options.lines.size() ? options.lines[node] : -1;
  call_args_[step.index].transfer =
      Transfers::get(device_).start([this, &step, line, number = options.number, caller = memory_log::caller(device_)] {
        use_one_thread();
        memory_log::CallerScope scope(caller);
        observer::Span span(observer::Phase::kLibrary, device_, step.name, line);
        span.set_run(number);
        span.set_node(step.location);
        span.set_bytes(plan_.calls[step.index].meeting_bytes);
        CallArgs& args = call_args_[step.index];
        calls_[step.index]->run(pool_, args.operands, args.results);
      });
}

// Of a run that has failed: the transfer under way uses its memory, and others may have brought results.
void CpuExecutable::abandon_calls() {
  Transfers::get(device_).finish();
  for (CallArgs& args : call_args_) {
    args.results.clear();
  }
}

} // namespace torch_xla::cpu
