// Stretches of steps that are worth leaving a processor.
#include "engine/cpu/program/pace.h"

#include <algorithm>
#include <utility>

#include "core/metrics.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/host.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

StepWork work_of(const Plan& plan, const std::vector<std::optional<LibraryCall>>& calls, const StepRef& step) {
  StepWork work;
  const LibraryCall* call = step.kind == StepKind::kLibrary && calls[step.index] ? &*calls[step.index] : nullptr;
  work.shares_out = step.kind == StepKind::kKernel || step.kind == StepKind::kUpdate || (call && call->shares_out());
  if (step.beside > 0) {
    return work;
  }
  if (step.kind == StepKind::kKernel) {
    const KernelStep& kernel = plan.kernels[step.index];
    work.work = kernel.units <= kernel.grain ? 0 : kernel.units / kernel.grain;
  } else if (step.kind == StepKind::kUpdate) {
    work.work = plan.updates[step.index].elements / kMovedPerThread;
  } else if (call) {
    work.work = call->work();
  }
  return work;
}

} // namespace

// The team comes back late from its sleep, as it finds a recorder on its processor: not for a few steps between two that need it.
Pace::Pace(const Plan& plan, const std::vector<std::optional<LibraryCall>>& calls)
    : steps_(plan.steps.size()), stretch_(plan.steps.size()) {
  constexpr int64_t kEndless = std::numeric_limits<int64_t>::max() / 2;
  int64_t behind = kEndless;
  for (size_t step = plan.steps.size(); step-- > 0;) {
    steps_[step] = work_of(plan, calls, plan.steps[step]);
    const Work& work = steps_[step].work;
    behind = work ? std::min(behind + std::max<int64_t>(*work, 1), kEndless) : 0;
    stretch_[step] = behind;
    work_of_all_ = work && work_of_all_ ? Work(*work_of_all_ + *work) : std::nullopt;
  }
}

bool Pace::leaves_processor() const {
  return !stretch_.empty() && is_worth_leaving(stretch_[0]) && will_have_recorder_beside(steps_[0]);
}

bool Pace::is_alone() const {
  return work_of_all_ && is_worth_no_wait(*work_of_all_, std::max(2, host().processors));
}

int64_t Pace::known_work() const {
  int64_t work = 0;
  for (const StepWork& step : steps_) {
    work += step.work.value_or(0);
  }
  return work;
}

// What the whole program takes one thread: by its work, until that has been seen.
int64_t Pace::time_alone() const {
  constexpr int kEnoughRuns = 8; // the first ones find nothing in the caches
  const auto by_work_ns = static_cast<int64_t>(static_cast<double>(*work_of_all_) * unit_ns());
  return num_alone_ < kEnoughRuns ? by_work_ns : std::max(by_work_ns, alone_ns_);
}

void Pace::run(std::function<void()> tell, const std::function<int32_t(int32_t)>& next) {
  const auto end = static_cast<int32_t>(steps_.size());
  int32_t step = 0;
  if (!tell && step < end && work_of_all_ && has_recorder_beside_all(time_alone())) {
    const int64_t start_ns = metrics::now_ns();
    run_alone([&] { return (step = next(step)) < end; });
    ++num_alone_;
    alone_ns_ = std::min(alone_ns_, metrics::now_ns() - start_ns);
  }
  while (step < end) {
    if (tell || (is_worth_leaving(stretch_[step]) && has_recorder_beside(steps_[step]))) {
      run_beside_recorder(std::exchange(tell, {}), [&] {
        step = next(step);
        return step < end && has_recorder_beside(steps_[step]);
      });
      continue;
    }
    if (steps_[step].work != 0) {
      note_team();
    }
    step = next(step);
  }
}

} // namespace torch_xla::cpu
