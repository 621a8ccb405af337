// A compiled program of the CPU engine: steps over planned memory.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/cpu/library/call.h"
#include "engine/cpu/program/loop.h"
#include "engine/cpu/schedule/memory_plan.h"
#include "engine/engine.h"

namespace torch_xla::cpu {

// Where a step's operand is at run time.
struct MemoryRef {
  int32_t memory = -1;
  int64_t byte_offset = 0;
};

struct KernelStep {
  Kernel kernel;
  std::vector<MemoryRef> buffers;
  std::vector<int32_t> scalars; // positions among the run's scalars
  int64_t units = 0;
  int64_t grain = 0; // units that are worth a thread
};

struct LibraryStep {
  std::optional<LibraryCall> call; // or else
  std::optional<Loop> loop;
  std::vector<MemoryRef> operands;
  std::vector<int32_t> results; // memories; -1: undefined
};

// result = base with the elements of a view replaced. Where base and result share memory, nothing else is copied.
struct UpdateStep {
  DType dtype = DType::F32;
  MemoryRef base;
  MemoryRef result;
  int64_t elements = 0; // of base
  MemoryRef update;
  Dims dims; // of update
  Dims update_strides;
  int64_t view_offset = 0; // bytes
  Dims view_strides;
};

// A value that the run gives out.
struct Output {
  Type type;
  int32_t memory = 0;
  bool is_input = false; // the parameter that lies there, as it is
};

// One step.
struct StepRef {
  StepKind kind = StepKind::kKernel;
  int32_t index = 0; // in the list of its kind
  std::string name; // for observers
  int32_t location = -1; // Node::location of one of its nodes
};

class CpuExecutable final : public Executable {
 public:
  // `fusion`: false compiles each primitive to a kernel of its own and calls the functional forms of ATen.
  CpuExecutable(const Graph& graph, const CompileOptions& options, bool fusion);
  void run(RunArgs& args) override;
  void prepare_caller() override;
  int64_t scratch_bytes() const override {
    return plan_.arena_bytes;
  }
  std::string text() const override {
    return text_;
  }

 private:
  struct Compiler;

  void start_run(RunArgs& args);
  void run_steps(RunArgs& args);
  void run_step(int32_t number, RunArgs& args);
  void take_memory(int32_t step, RunArgs& args);
  void take_donor(int32_t step, int32_t memory, RunArgs& args);
  void release_memory(int32_t step, RunArgs& args);
  void commit(int32_t step, RunArgs& args);
  void restore_inputs(RunArgs& args);
  void run_kernel(const KernelStep& step, const RunArgs& args);
  void run_library(LibraryStep& step, const RunOptions& options);
  void run_update(const UpdateStep& step);
  void save_view(const UpdateStep& step);
  void collect_outputs(RunArgs& args);
  void end_run();
  char* address(const MemoryRef& ref) const {
    return base_[ref.memory] + ref.byte_offset;
  }

  const int device_;
  Pool& pool_; // the device's
  // The graph itself is not kept: it is larger than all that the runs need of it.
  MemoryPlan plan_;
  std::vector<StepRef> steps_;
  std::vector<KernelStep> kernels_;
  std::vector<LibraryStep> calls_;
  std::vector<UpdateStep> updates_;
  std::vector<Output> outputs_;
  std::string text_; // empty unless asked for

  std::mutex mutex_; // one run at a time; guards all below
  std::vector<char*> base_; // by memory
  std::vector<BlockRef> blocks_; // by memory: what the run owns
  std::vector<bool> donatable_; // by parameter
  bool committed_ = false; // memory of RunArgs::restored is being written: from here on the run does not fail
  // What updates have written over in such memory before that, the last one last.
  std::vector<std::pair<const UpdateStep*, BlockRef>> saved_;
  std::vector<bool> saves_; // by memory: updates of it are saved
  BlockRef arena_;
  std::vector<void*> pointers_; // arguments of the step that runs
  std::vector<uint64_t> scalars_;
  std::vector<ResultMemory> results_;
};

} // namespace torch_xla::cpu
