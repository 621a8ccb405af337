// The pace of a run: its steps one after the other, on the team or, while the program's own thread records, without one of its threads
// (docs/processors.md).
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "engine/cpu/program/plan.h"
#include "engine/cpu/threads/leave.h"

namespace torch_xla::cpu {

class Pace {
 public:
  // `calls`: parallel to the plan's; none where one is a loop.
  Pace(const Plan& plan, const std::vector<std::optional<LibraryCall>>& calls);
  // As Executable's. Any thread.
  bool leaves_processor() const;
  bool is_alone() const;
  // The sum over the steps with known work.
  int64_t known_work() const;
  // Runs all steps: next(step) runs one, with those beside it, and returns the one behind. `tell`: RunOptions::tell. One run at a time.
  void run(std::function<void()> tell, const std::function<int32_t(int32_t)>& next);

 private:
  int64_t time_alone() const;

  std::vector<StepWork> steps_; // parallel to the plan's
  std::vector<int64_t> stretch_; // by step: the work from there to the next one that has none, or to the end, where there is none
  Work work_of_all_ = 0; // none where one step has none
  int num_alone_ = 0; // runs that were run_alone()
  int64_t alone_ns_ = std::numeric_limits<int64_t>::max(); // the shortest of them
};

} // namespace torch_xla::cpu
