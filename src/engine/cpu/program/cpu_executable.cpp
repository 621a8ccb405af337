// Running a compiled program: taking memory, the three kinds of step, outputs.
#include "engine/cpu/program/cpu_executable.h"

#include <algorithm>

#include "core/errors.h"
#include "core/observer.h"
#include "core/step_line.h"
#include "engine/cpu/copy_kernel.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/library/step_error.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

observer::Phase phase_of(StepKind kind) {
  switch (kind) {
    case StepKind::kKernel:
      return observer::Phase::kKernel;
    case StepKind::kUpdate:
      return observer::Phase::kUpdate;
    default:
      return observer::Phase::kLibrary;
  }
}

// A guess for a program that has not run yet. A loop may take any number of turns.
bool looks_short(const Plan& plan, const std::vector<Loop>& loops, const std::vector<Work>& steps) {
  int64_t work = 0;
  for (const Work& of_step : steps) {
    work += of_step.value_or(0);
  }
  int64_t bytes = 0;
  for (const Memory& memory : plan.memory.memories) {
    bytes += memory.bytes;
  }
  return loops.empty() && bytes <= kSmallProgramBytes && work <= kSmallProgramWork;
}

} // namespace

CpuExecutable::CpuExecutable(Plan plan, std::vector<Kernel> kernels, std::vector<Loop> loops, int device, std::string text)
    : device_(device),
      pool_(Pool::get(device)),
      plan_(std::move(plan)),
      kernels_(std::move(kernels)),
      loops_(std::move(loops)),
      text_(std::move(text)) {
  prepare_calls();
  for (KernelStep& step : plan_.kernels) {
    step.numbers = {}; // of use on disk only
  }
  base_.resize(plan_.memory.memories.size());
  blocks_.resize(plan_.memory.memories.size());
  saves_.resize(plan_.memory.memories.size());
  donatable_.resize(plan_.num_parameters);
  call_args_.resize(plan_.calls.size());
  kept_.resize(plan_.memory.memories.size());
  last_results_.resize(plan_.kernels.size());
  last_packs_.resize(plan_.calls.size());
  find_stretches();
  if (looks_short(plan_, loops_, work_)) {
    usual_run_ns = 0;
  }
}

// A call's results lie in planned memory, or the call allocates it.
void CpuExecutable::prepare_calls() {
  calls_.resize(plan_.calls.size());
  for (size_t s = 0; s < plan_.steps.size(); ++s) {
    const StepRef& ref = plan_.steps[s];
    bool calls = ref.kind == StepKind::kLibrary || ref.kind == StepKind::kStart;
    if (!calls || plan_.calls.at(ref.index).loop >= 0) {
      continue;
    }
    LibraryStep& step = plan_.calls[ref.index];
    const LibraryCall& call = calls_.at(ref.index).emplace(step.call);
    for (int32_t result : step.results) {
      const Memory* memory = result < 0 ? nullptr : &plan_.memory.memories.at(result);
      // Later calls may write into memory that an earlier call allocated.
      bool brought = memory && memory->home == Memory::Home::kAdopted && memory->first >= static_cast<int32_t>(s);
      XLA_ASSERT(!memory || brought != call.writes_into(), step.call.name, " was planned otherwise");
    }
    step.call = {};
  }
}

void CpuExecutable::run(RunArgs& args) {
  std::lock_guard<std::mutex> lock(mutex_);
  use_team(args.options.threads);
  struct Ending {
    CpuExecutable& executable;
    ~Ending() {
      executable.end_run();
    }
  } ending{*this};
  start_run(args);
  try {
    run_steps(args);
  } catch (...) {
    abandon_calls();
    restore_inputs(args);
    throw;
  }
  collect_outputs(args);
}

int64_t CpuExecutable::line_of(const StepRef& step, const RunOptions& options) {
  auto node = static_cast<size_t>(step.location);
  return node < options.lines.size() ? options.lines[node] : -1;
}

void CpuExecutable::check_cancelled(const RunOptions& options) const {
  XLA_CHECK(committed_ || !options.is_cancelled(), kCancelled);
}

void CpuExecutable::run_step(int32_t number, RunArgs& args) {
  const StepRef& step = plan_.steps[number];
  if (step.kind == StepKind::kStart) {
    start_transfer(step, args.options);
    return;
  }
  const StepLine line(line_of(step, args.options));
  observer::Span span(phase_of(step.kind), device_, step.name, StepLine::current());
  span.set_run(args.options.number);
  span.set_node(step.location);
  switch (step.kind) {
    case StepKind::kKernel:
      plan_.kernels[step.index].keeps ? run_keeping(step.index, args) : run_kernel(kernels_[step.index], plan_.kernels[step.index], args);
      break;
    case StepKind::kLibrary:
      span.set_bytes(plan_.calls[step.index].meeting_bytes);
      run_library(step.index, args);
      break;
    case StepKind::kUpdate:
      run_update(number);
      break;
    case StepKind::kStart:
      break;
    case StepKind::kWait:
      Transfers::get(device_).wait(call_args_[step.index].transfer);
      take_results(step.index);
      break;
  }
}

void CpuExecutable::start_run(RunArgs& args) {
  XLA_ASSERT(args.inputs.size() == donatable_.size(), "inputs of a run");
  args.restored.resize(args.inputs.size());
  numbers_ = args.scalars.data();
  if (plan_.memory.arena_bytes) {
    arena_ = take_block(plan_.memory.arena_bytes, largest_in_arena());
  }
  char* arena = arena_ ? static_cast<char*>(arena_->data()) : nullptr;
  for (size_t m = 0; m < plan_.memory.memories.size(); ++m) {
    const Memory& memory = plan_.memory.memories[m];
    if (memory.home == Memory::Home::kParameter) {
      const EngineBufferRef& input = args.inputs[memory.parameter];
      XLA_ASSERT(input->device() == device_, "a program of xla:", device_, " got a value of xla:", input->device());
      base_[m] = static_cast<char*>(input->host_pointer());
      // A program that returns an input unchanged gives two values one engine buffer.
      donatable_[memory.parameter] = args.donated[memory.parameter] && input.use_count() == 1 && input->sole_owner();
    } else if (memory.home == Memory::Home::kArena) {
      base_[m] = arena + memory.offset;
    }
  }
}

// If memory is out, the error names the operation and the line of the step that needs it.
BlockRef CpuExecutable::take_block(int64_t bytes, int32_t step) {
  try {
    return std::make_shared<Block>(pool_, static_cast<size_t>(bytes));
  } catch (...) {
    rethrow_as_step_error(plan_.steps[step].name, plan_.steps[step].location);
  }
}

// The step that writes the largest value there.
int32_t CpuExecutable::largest_in_arena() const {
  auto bytes_in_arena = [](const Memory& memory) { return memory.home == Memory::Home::kArena ? memory.bytes : -1; };
  return std::ranges::max_element(plan_.memory.memories, {}, bytes_in_arena)->first;
}

void CpuExecutable::take_memory(int32_t step, RunArgs& args) {
  for (int32_t m : plan_.memory.taken[step]) {
    if (!blocks_[m]) { // else commit() has taken it
      take_donor(step, m, args);
    }
    if (!blocks_[m] && plan_.memory.memories[m].home == Memory::Home::kBlock) {
      blocks_[m] = take_block(plan_.memory.memories[m].bytes, step);
    }
    if (blocks_[m]) {
      base_[m] = static_cast<char*>(blocks_[m]->data());
    }
  }
}

// Memory that a failed run must restore is written after all steps that can fail, or by updates with an undo.
void CpuExecutable::take_donor(int32_t step, int32_t m, RunArgs& args) {
  const Memory& memory = plan_.memory.memories[m];
  saves_[m] = false;
  for (int32_t donor : memory.donors) {
    int32_t parameter = plan_.memory.memories[donor].parameter;
    bool restored = args.restored[parameter];
    if (!donatable_[parameter] || (restored && step <= plan_.memory.last_fallible && !memory.undoable)) {
      continue;
    }
    donatable_[parameter] = false;
    blocks_[m] = cpu_buffer(args.inputs[parameter]).block();
    saves_[m] = restored && step <= plan_.memory.last_fallible;
    if (restored && step > plan_.memory.last_fallible) {
      commit(step, args);
    }
    return;
  }
}

// Takes all remaining memory before the first write that cannot be undone.
void CpuExecutable::commit(int32_t step, RunArgs& args) {
  if (committed_) {
    return;
  }
  committed_ = true;
  try {
    for (int32_t later = step; later < static_cast<int32_t>(plan_.steps.size()); ++later) {
      take_memory(later, args);
    }
  } catch (...) {
    committed_ = false; // nothing is written yet
    throw;
  }
}

void CpuExecutable::restore_inputs(RunArgs& args) {
  for (; !committed_ && !undo_.empty(); undo_.pop_back()) {
    undo_.back()();
  }
  for (size_t i = 0; committed_ && i < args.inputs.size(); ++i) {
    if (!donatable_[i]) {
      args.inputs[i].reset();
    }
  }
}

void CpuExecutable::release_memory(int32_t step, RunArgs& args) {
  for (int32_t m : plan_.memory.released[step]) {
    int32_t parameter = plan_.memory.memories[m].parameter;
    if (plan_.memory.memories[m].home == Memory::Home::kParameter) {
      if (!args.restored[parameter] || committed_) {
        args.inputs[parameter].reset();
      }
    } else {
      blocks_[m].reset();
    }
  }
}

void CpuExecutable::run_kernel(const Kernel& kernel, const KernelStep& step, const RunArgs& args) {
  if (step.units == 0) {
    return;
  }
  pointers_.resize(step.buffers.size());
  for (size_t i = 0; i < step.buffers.size(); ++i) {
    pointers_[i] = address(step.buffers[i]);
  }
  scalars_.resize(step.scalars.size());
  for (size_t i = 0; i < step.scalars.size(); ++i) {
    scalars_[i] = args.scalars[step.scalars[i]];
  }
  scalars_.insert(scalars_.end(), step.arguments.begin(), step.arguments.end());
  if (step.units <= step.grain) {
    kernel(pointers_.data(), scalars_.data(), 0, step.units);
    return;
  }
  share_out(step.units, step.grain, step.units / step.grain, [&](int64_t begin, int64_t end) {
    kernel(pointers_.data(), scalars_.data(), begin, end);
  });
}

void CpuExecutable::run_update(int32_t number) {
  const UpdateStep& step = plan_.updates[plan_.steps[number].index];
  char* base = address(step.base);
  char* result = address(step.result);
  if (base != result) {
    copy_strided(step.dtype, {step.elements}, result, {1}, base, {1});
  } else if (saves_[step.result.memory] && !committed_) {
    save_view(number);
  }
  copy_strided(step.dtype, step.dims, address(step.view), step.view_strides, address(step.update), step.update_strides);
}

void CpuExecutable::save_view(int32_t number) {
  const UpdateStep& step = plan_.updates[plan_.steps[number].index];
  BlockRef block = take_block(num_elements(step.dims) * static_cast<int64_t>(item_size(step.dtype)), number);
  Dims packed = contiguous_strides(step.dims);
  char* view = address(step.view);
  copy_strided(step.dtype, step.dims, block->data(), packed, view, step.view_strides);
  undo_.push_back([&step, block, packed, view] { copy_strided(step.dtype, step.dims, view, step.view_strides, block->data(), packed); });
}

int64_t CpuExecutable::code_bytes() const {
  int64_t bytes = 0;
  for (const Kernel& kernel : kernels_) {
    bytes += static_cast<int64_t>(kernel.bytes());
  }
  return bytes;
}

void CpuExecutable::collect_outputs(RunArgs& args) {
  args.outputs.clear();
  for (const Output& output : plan_.outputs) {
    const Memory& memory = plan_.memory.memories[output.memory];
    if (output.is_input) {
      args.outputs.push_back(args.inputs[memory.parameter]);
      continue;
    }
    bool of_input = memory.home == Memory::Home::kParameter;
    BlockRef block = of_input ? cpu_buffer(args.inputs[memory.parameter]).block() : blocks_[output.memory];
    args.outputs.push_back(std::make_shared<CpuBuffer>(output.type, output.strides, device_, std::move(block)));
  }
  args.inputs.clear();
}

void CpuExecutable::end_run() {
  for (BlockRef& block : blocks_) {
    block.reset();
  }
  kept_.assign(kept_.size(), nullptr);
  arena_.reset();
  undo_.clear();
  committed_ = false;
}

} // namespace torch_xla::cpu
