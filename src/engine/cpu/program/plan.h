// A program as data: the result of planning, without code, tensors or memory. Executables are built from it, and files store it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cpu/kernel_structure.h"
#include "engine/cpu/library/call.h"
#include "engine/cpu/schedule/pipeline.h"

namespace torch_xla::cpu {

// The place of a step's operand at run time.
struct MemoryRef {
  int32_t memory = -1;
  int64_t byte_offset = 0;
  int32_t moved_by = -1; // position among the run's scalars: the number of a moving view
  int32_t moved_bytes = 0; // multiplied by that number
};

struct KernelStep {
  Hash128 code; // the key of the kernel
  KernelNumbers numbers; // of the kernel's structure
  std::vector<MemoryRef> buffers;
  std::vector<int32_t> scalars; // positions among the run's scalars
  std::vector<uint64_t> arguments; // of the code, after the scalars
  int64_t units = 0;
  int64_t grain = 0; // units worth a thread
  bool keeps = false; // its results are Memory::kept
};

struct LibraryStep {
  CallSpec call; // of a loop: empty
  int32_t loop = -1; // position among the program's loops
  std::vector<MemoryRef> operands;
  std::vector<int32_t> results; // memories; -1: undefined
  int64_t meeting_bytes = -1; // collective: bytes of its operands
};

// result = base with the elements of a view replaced. If base and result share memory, nothing else is copied.
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

// An output of the run.
struct Output {
  Type type;
  Dims strides;
  int32_t memory = 0;
  bool is_input = false; // the parameter itself
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
  MemoryPlan memory; // without memory_of: the graph is not kept, as it is larger than all that runs need
  std::vector<StepRef> steps;
  std::vector<KernelStep> kernels;
  std::vector<LibraryStep> calls;
  std::vector<UpdateStep> updates;
  std::vector<Output> outputs;
  uint64_t num_parameters = 0;
  bool checks_values = false; // one of the calls does
};

// A kernel of a schedule: its code and its arguments.
struct CompiledKernel {
  Kernel code;
  ChosenKernel chosen;
};

// `kernels`: the schedule's, in their order.
Plan make_plan(const Schedule& schedule, const std::vector<CompiledKernel>& kernels);

// Makes kernels by position on several threads; the first error ends it. This thread calls `poll` before each of its kernels; may be empty.
std::vector<Kernel> make_kernels(size_t count, const std::function<Kernel(size_t)>& make, const std::function<void()>& poll);
// The schedule's kernels, compiled.
std::vector<CompiledKernel> compile_kernels(const Schedule& schedule, const std::function<void()>& poll);

// The plan as bytes for a file, and back: InternalError if the bytes are no plan of this build.
std::string write_plan(const Plan& plan);
Plan read_plan(std::string_view bytes);

} // namespace torch_xla::cpu
