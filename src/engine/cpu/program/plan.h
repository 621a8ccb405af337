// A program as data: what planning decides and runs go by, without code, tensors or memory. Executables are made of it, files hold it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cpu/kernel_structure.h"
#include "engine/cpu/library/call.h"
#include "engine/cpu/schedule/pipeline.h"

namespace torch_xla::cpu {

// Where a step's operand is at run time.
struct MemoryRef {
  int32_t memory = -1;
  int64_t byte_offset = 0;
  int32_t moved_by = -1; // position among the run's scalars: the number of a moving view
  int32_t moved_bytes = 0; // for each one of that number
};

struct KernelStep {
  Hash128 code; // by which the kernel is found
  KernelNumbers numbers; // of its structure
  std::vector<MemoryRef> buffers;
  std::vector<int32_t> scalars; // positions among the run's scalars
  std::vector<uint64_t> arguments; // of the code, behind the scalars
  int64_t units = 0;
  int64_t grain = 0; // units that are worth a thread
  bool keeps = false; // its results are Memory::kept
};

struct LibraryStep {
  CallSpec call; // of a loop: empty
  int32_t loop = -1; // position among the program's loops
  std::vector<MemoryRef> operands;
  std::vector<int32_t> results; // memories; -1: undefined
  int64_t meeting_bytes = -1; // of a collective: of its operands
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
  MemoryRef view; // where the view begins in the result
  Dims view_strides;
};

// A value that the run gives out.
struct Output {
  Type type;
  Dims strides;
  int32_t memory = 0;
  bool is_input = false; // the parameter that lies there, as it is
};

// One step.
struct StepRef {
  StepKind kind = StepKind::kKernel;
  int32_t index = 0; // in the list of its kind; kStart and its kWait have one call
  std::string name; // for observers
  int32_t location = -1; // Node::location of one of its nodes
  int32_t beside = 0; // as Step::beside
};

struct Plan {
  MemoryPlan memory; // without memory_of: the graph itself is not kept, as it is larger than all that the runs need of it
  std::vector<StepRef> steps;
  std::vector<KernelStep> kernels;
  std::vector<LibraryStep> calls;
  std::vector<UpdateStep> updates;
  std::vector<Output> outputs;
  uint64_t num_parameters = 0;
  bool checks_values = false; // one of the calls does
};

// A kernel of a schedule: its code, and what is to be given to it.
struct CompiledKernel {
  Kernel code;
  ChosenKernel chosen;
};

// `kernels`: those of the schedule, in their order.
Plan make_plan(const Schedule& schedule, const std::vector<CompiledKernel>& kernels);

// Kernels by their position, several threads at a time; the first error ends it. `poll` is called before each on this thread; may be empty.
std::vector<Kernel> make_kernels(size_t count, const std::function<Kernel(size_t)>& make, const std::function<void()>& poll);
// The schedule's kernels, compiled.
std::vector<CompiledKernel> compile_kernels(const Schedule& schedule, const std::function<void()>& poll);

// The plan for a file, and back: InternalError where the bytes are no plan of this build's.
std::string write_plan(const Plan& plan);
Plan read_plan(std::string_view bytes);

} // namespace torch_xla::cpu
