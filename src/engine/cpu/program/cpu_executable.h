// A compiled program of the CPU engine: steps over planned memory.
#pragma once

#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/cpu/program/loop.h"
#include "engine/cpu/program/plan.h"
#include "engine/cpu/program/transfers.h"
#include "engine/cpu/threads/leave.h"
#include "engine/engine.h"

namespace torch_xla::cpu {

class CpuExecutable final : public Executable {
 public:
  // `kernels` and `loops` are the plan's, in their order. Throws InternalError if ATen's calls are not as planned.
  CpuExecutable(Plan plan, std::vector<Kernel> kernels, std::vector<Loop> loops, int device, std::string text = {});
  void run(RunArgs& args) override;
  bool leaves_processor() const override;
  bool is_alone() const override;
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
  static int64_t line_of(const StepRef& step, const RunOptions& options);
  void prepare_calls();
  void start_run(RunArgs& args);
  void check_cancelled(const RunOptions& options) const;
  Work work_of(const StepRef& step) const;
  StepWork step_work(int32_t step) const;
  void find_stretches();
  int64_t time_alone() const;
  void run_steps(RunArgs& args);
  int32_t run_next(int32_t begin, RunArgs& args);
  void run_step(int32_t number, RunArgs& args);
  void run_beside(int32_t begin, int32_t end, RunArgs& args);
  void run_call(const StepRef& step, const RunOptions& options);
  BlockRef take_block(int64_t bytes, int32_t step);
  int32_t largest_in_arena() const;
  void take_memory(int32_t step, RunArgs& args);
  void take_donor(int32_t step, int32_t memory, RunArgs& args);
  void release_memory(int32_t step, RunArgs& args);
  void commit(int32_t step, RunArgs& args);
  void restore_inputs(RunArgs& args);
  void run_kernel(const Kernel& kernel, const KernelStep& step, const RunArgs& args);
  CpuBuffer* constant_in(int32_t memory, const RunArgs& args) const;
  Hash128 key_of_results(const KernelStep& step, const RunArgs& args) const;
  void keep_results(const KernelStep& step, const Hash128& key, CpuBuffer& owner);
  void take_kept(const KernelStep& step, const std::vector<CpuBufferRef>& results);
  void run_keeping(int32_t index, const RunArgs& args);
  PackedRef find_packed(int32_t index, const RunArgs& args);
  void run_library(int32_t index, const RunArgs& args);
  void prepare_call(int32_t index);
  void take_results(int32_t index);
  void start_transfer(const StepRef& step, const RunOptions& options);
  void abandon_calls();
  void run_update(int32_t number);
  void save_view(int32_t number);
  void collect_outputs(RunArgs& args);
  void end_run();
  char* address(const MemoryRef& ref) const {
    int64_t moved = ref.moved_by < 0 ? 0 : static_cast<int64_t>(numbers_[ref.moved_by]) * ref.moved_bytes;
    return base_[ref.memory] + ref.byte_offset + moved;
  }

  const int device_;
  Pool& pool_; // the device's
  Plan plan_; // without the parts of calls that calls_ has
  std::vector<Kernel> kernels_; // parallel to plan_.kernels
  std::vector<std::optional<LibraryCall>> calls_; // parallel to plan_.calls; none for loops
  std::vector<Loop> loops_;
  std::vector<Work> work_; // parallel to plan_.steps
  std::vector<int64_t> stretch_; // parallel to plan_.steps: the work from there to the next step without Work, or to the end
  Work work_of_all_; // of all steps; none if a step has none
  std::string text_; // empty unless asked for

  std::mutex mutex_; // one run at a time; guards all below
  std::vector<char*> base_; // by memory
  const uint64_t* numbers_ = nullptr; // the run's scalars
  std::vector<BlockRef> blocks_; // by memory: the run's own block
  std::vector<CpuBufferRef> kept_; // by memory: the kept buffer there, if any
  std::vector<Hash128> last_results_; // by kernel with kept results: the key of the last run's results
  std::vector<Hash128> last_packs_; // by call with a packed operand: the key of the last run's
  std::vector<bool> donatable_; // by parameter
  bool committed_ = false; // memory of RunArgs::restored is overwritten: from now on the run cannot fail
  std::vector<Undo> undo_; // undo of earlier writes to such memory, in order
  std::vector<bool> saves_; // by memory: whether overwritten elements are saved
  BlockRef arena_;
  int num_alone_ = 0; // runs by run_alone()
  int64_t alone_ns_ = std::numeric_limits<int64_t>::max(); // the shortest of them
  std::vector<void*> pointers_; // arguments of the running kernel
  std::vector<uint64_t> scalars_;
  struct CallArgs {
    std::vector<void*> operands;
    std::vector<ResultMemory> results;
    uint64_t transfer = 0; // its number in Transfers, if it runs there
  };
  std::vector<CallArgs> call_args_; // parallel to plan_.calls
};

} // namespace torch_xla::cpu
