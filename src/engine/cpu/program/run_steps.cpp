// The steps of a run one after the other, on the team or, while the program's own thread records, on all threads of the team but one.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/metrics.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/host.h"
#include "engine/cpu/program/cpu_executable.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {

Work CpuExecutable::work_of(const StepRef& step) const {
  if (step.beside > 0) {
    return std::nullopt;
  }
  switch (step.kind) {
    case StepKind::kKernel: {
      const KernelStep& kernel = plan_.kernels[step.index];
      return kernel.units <= kernel.grain ? 0 : kernel.units / kernel.grain;
    }
    case StepKind::kLibrary:
      return calls_[step.index] ? calls_[step.index]->work() : std::nullopt;
    case StepKind::kUpdate:
      return plan_.updates[step.index].elements / kMovedPerThread;
    default:
      return std::nullopt;
  }
}

// A sleeping thread comes back late, as a recorder has its processor: it is not worth waking it for a few steps between two sleeps.
void CpuExecutable::find_stretches() {
  constexpr int64_t kEndless = std::numeric_limits<int64_t>::max() / 2;
  work_.resize(plan_.steps.size());
  stretch_.resize(plan_.steps.size());
  work_of_all_ = 0;
  int64_t behind = kEndless;
  for (size_t step = plan_.steps.size(); step-- > 0;) {
    work_[step] = work_of(plan_.steps[step]);
    behind = work_[step] ? std::min(behind + std::max<int64_t>(*work_[step], 1), kEndless) : 0;
    stretch_[step] = behind;
    work_of_all_ = work_[step] && work_of_all_ ? Work(*work_of_all_ + *work_[step]) : std::nullopt;
  }
}

bool CpuExecutable::leaves_processor() const {
  return !stretch_.empty() && is_worth_leaving(stretch_[0]) && will_have_recorder_beside(step_work(0));
}

bool CpuExecutable::is_alone() const {
  return work_of_all_ && is_worth_no_wait(*work_of_all_, std::max(2, host().processors));
}

StepWork CpuExecutable::step_work(int32_t step) const {
  const StepRef& ref = plan_.steps[step];
  const bool is_call = ref.kind == StepKind::kLibrary && calls_[ref.index];
  return {work_[step], ref.kind == StepKind::kKernel || ref.kind == StepKind::kUpdate || (is_call && calls_[ref.index]->shares_out())};
}

// Time of the whole program on one thread: estimated from its work until it has been measured.
int64_t CpuExecutable::time_alone() const {
  constexpr int kEnoughRuns = 8; // the first ones find nothing in the caches
  const auto by_work_ns = static_cast<int64_t>(static_cast<double>(*work_of_all_) * unit_ns());
  return num_alone_ < kEnoughRuns ? by_work_ns : std::max(by_work_ns, alone_ns_);
}

void CpuExecutable::run_steps(RunArgs& args) {
  const auto end = static_cast<int32_t>(plan_.steps.size());
  std::function<void()> tell = std::exchange(args.options.tell, {});
  int32_t step = 0;
  if (!tell && step < end && work_of_all_ && has_recorder_beside_all(time_alone())) {
    const int64_t start_ns = metrics::now_ns();
    run_alone([&] { return (step = run_next(step, args)) < end; });
    ++num_alone_;
    alone_ns_ = std::min(alone_ns_, metrics::now_ns() - start_ns);
  }
  while (step < end) {
    if (tell || (is_worth_leaving(stretch_[step]) && has_recorder_beside(step_work(step)))) {
      run_beside_recorder(std::exchange(tell, {}), [&] {
        step = run_next(step, args);
        return step < end && has_recorder_beside(step_work(step));
      });
      continue;
    }
    if (work_[step] != 0) {
      note_team();
    }
    step = run_next(step, args);
  }
}

// Runs the step and those beside it. Returns the next step.
int32_t CpuExecutable::run_next(int32_t begin, RunArgs& args) {
  const int32_t end = begin + 1 + plan_.steps[begin].beside;
  check_cancelled(args.options);
  if (begin > plan_.memory.last_fallible && !undo_.empty()) {
    commit(begin, args);
  }
  for (int32_t step = begin; step < end; ++step) {
    take_memory(step, args);
  }
  end - begin > 1 ? run_beside(begin, end, args) : run_step(begin, args);
  for (int32_t step = begin; step < end; ++step) {
    release_memory(step, args);
  }
  return end;
}

} // namespace torch_xla::cpu
