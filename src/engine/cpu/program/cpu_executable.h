// A compiled program of the CPU engine: steps over planned memory.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/cpu/program/kept_values.h"
#include "engine/cpu/program/loop.h"
#include "engine/cpu/program/pace.h"
#include "engine/cpu/program/plan.h"
#include "engine/cpu/program/run_memory.h"
#include "engine/cpu/program/transfers.h"
#include "engine/engine.h"

namespace torch_xla::cpu {

class CpuExecutable final : public Executable {
 public:
  // `kernels` and `loops` are the plan's, in their order. Throws InternalError if ATen's calls are not as planned.
  CpuExecutable(Plan plan, std::vector<Kernel> kernels, std::vector<Loop> loops, int device, std::string text = {});
  void run(RunArgs& args) override;
  bool leaves_processor() const override {
    return pace_.leaves_processor();
  }
  bool is_alone() const override {
    return pace_.is_alone();
  }
  int64_t scratch_bytes() const override {
    return plan_.memory.arena_bytes;
  }
  int64_t code_bytes() const override;
  bool checks_values() const override {
    return plan_.checks_values;
  }
  std::string text() const override {
    return text_;
  }

 private:
  void check_cancelled(const RunOptions& options) const;
  int32_t run_next(int32_t begin, RunArgs& args);
  void run_step(int32_t number, RunArgs& args);
  void run_kernel(int32_t index, const RunArgs& args);
  void run_update(int32_t number);
  void save_view(int32_t number, std::vector<Undo>& undo);
  void prepare_call(int32_t index);
  void take_results(int32_t index);
  void run_library(int32_t index, const RunArgs& args);
  void run_call(const StepRef& step, const RunOptions& options);
  void run_beside(int32_t begin, int32_t end, RunArgs& args);
  void start_transfer(const StepRef& step, const RunOptions& options);
  void abandon_calls();
  void collect_outputs(RunArgs& args);

  const int device_;
  Pool& pool_; // the device's
  Plan plan_; // without the parts of calls that calls_ has
  std::vector<Kernel> kernels_; // parallel to plan_.kernels
  std::vector<std::optional<LibraryCall>> calls_; // parallel to plan_.calls; none for loops
  std::vector<Loop> loops_;
  std::string text_; // empty unless asked for
  Pace pace_; // run() is guarded by mutex_

  std::mutex mutex_; // one run at a time; guards all below
  int32_t first_runs_ = 0; // up to kFirstRuns
  RunMemory memory_;
  KeptValues kept_;
  std::vector<void*> pointers_; // arguments of the kernel that runs
  std::vector<uint64_t> scalars_;
  struct CallArgs {
    std::vector<void*> operands;
    std::vector<ResultMemory> results;
    uint64_t transfer = 0; // its number in Transfers, if it runs there
  };
  std::vector<CallArgs> call_args_; // parallel to plan_.calls
};

} // namespace torch_xla::cpu
