// Running a compiled program: taking memory, the three kinds of step, outputs.
#include "engine/cpu/cpu_executable.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>

#include "core/errors.h"

namespace torch_xla::cpu {
namespace {

// The number of threads is a setting of each thread that starts parallel work.
void use_threads(int threads) {
  thread_local const int own_choice = at::get_num_threads();
  thread_local int now = own_choice;
  int wanted = threads > 0 ? threads : own_choice;
  if (wanted != now) {
    at::set_num_threads(wanted);
    now = wanted;
  }
}

CpuBuffer& cpu_buffer(const EngineBufferRef& buffer) {
  return static_cast<CpuBuffer&>(*buffer);
}

} // namespace

// libgomp's threads wait for work by spinning only while all teams of the process together are no more than the processors; beyond that
// each parallel region of the run puts its threads to sleep and wakes them. The team that eager work left on the calling thread ends here.
void CpuExecutable::prepare_caller() {
  omp_pause_resource(omp_pause_soft, omp_get_initial_device());
}

void CpuExecutable::run(RunArgs& args) {
  std::lock_guard<std::mutex> lock(mutex_);
  use_threads(args.options.threads);
  struct Ending {
    CpuExecutable& executable;
    ~Ending() {
      executable.end_run();
    }
  } ending{*this};
  start_run(args);
  for (size_t s = 0; s < steps_.size(); ++s) {
    auto step = static_cast<int32_t>(s);
    take_memory(step, args);
    switch (steps_[s].kind) {
      case Step::Kind::kKernel:
        run_kernel(kernels_[steps_[s].index], args);
        break;
      case Step::Kind::kLibrary:
        run_library(calls_[steps_[s].index]);
        break;
      case Step::Kind::kUpdate:
        run_update(updates_[steps_[s].index]);
        break;
    }
    release_memory(step, args);
  }
  collect_outputs(args);
}

void CpuExecutable::start_run(RunArgs& args) {
  XLA_ASSERT(args.inputs.size() == donatable_.size(), "inputs of a run");
  if (plan_.arena_bytes) {
    arena_ = std::make_shared<Block>(static_cast<size_t>(plan_.arena_bytes));
  }
  char* arena = arena_ ? static_cast<char*>(arena_->data()) : nullptr;
  for (size_t m = 0; m < plan_.memories.size(); ++m) {
    const Memory& memory = plan_.memories[m];
    if (memory.home == Memory::Home::kParameter) {
      const EngineBufferRef& input = args.inputs[memory.parameter];
      base_[m] = static_cast<char*>(input->host_pointer());
      // A program that returns its input as it is gives two values one engine buffer.
      donatable_[memory.parameter] = args.donated[memory.parameter] && input.use_count() == 1 && input->sole_owner();
    } else if (memory.home == Memory::Home::kArena) {
      base_[m] = arena + memory.offset;
    }
  }
}

void CpuExecutable::take_memory(int32_t step, RunArgs& args) {
  for (int32_t m : plan_.taken[step]) {
    const Memory& memory = plan_.memories[m];
    for (int32_t donor : memory.donors) {
      int32_t parameter = plan_.memories[donor].parameter;
      if (donatable_[parameter]) {
        donatable_[parameter] = false;
        blocks_[m] = cpu_buffer(args.inputs[parameter]).block();
        break;
      }
    }
    if (!blocks_[m] && memory.home == Memory::Home::kBlock) {
      blocks_[m] = std::make_shared<Block>(static_cast<size_t>(memory.bytes));
    }
    if (blocks_[m]) {
      base_[m] = static_cast<char*>(blocks_[m]->data());
    }
  }
}

void CpuExecutable::release_memory(int32_t step, RunArgs& args) {
  for (int32_t m : plan_.released[step]) {
    if (plan_.memories[m].home == Memory::Home::kParameter) {
      args.inputs[plan_.memories[m].parameter].reset();
    } else {
      blocks_[m].reset();
    }
  }
}

void CpuExecutable::run_kernel(const KernelStep& step, const RunArgs& args) {
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
  if (step.units <= step.grain) {
    step.kernel(pointers_.data(), scalars_.data(), 0, step.units);
    return;
  }
  at::parallel_for(
      0, step.units, step.grain, [&](int64_t begin, int64_t end) { step.kernel(pointers_.data(), scalars_.data(), begin, end); });
}

void CpuExecutable::run_library(LibraryStep& step) {
  pointers_.resize(step.operands.size());
  for (size_t i = 0; i < step.operands.size(); ++i) {
    pointers_[i] = step.operands[i].memory < 0 ? nullptr : address(step.operands[i]);
  }
  results_.clear();
  results_.resize(step.results.size());
  bool adopts = !step.call.writes_into();
  for (size_t i = 0; i < step.results.size() && !adopts; ++i) {
    results_[i].data = base_[step.results[i]];
  }
  step.call.run(pointers_, results_);
  for (size_t i = 0; i < step.results.size() && adopts; ++i) {
    if (step.results[i] >= 0) {
      base_[step.results[i]] = static_cast<char*>(results_[i].data);
      blocks_[step.results[i]] = std::move(results_[i].block);
    }
  }
}

void CpuExecutable::run_update(const UpdateStep& step) {
  char* base = address(step.base);
  char* result = address(step.result);
  if (base != result) {
    copy_strided(step.dtype, {step.elements}, result, {1}, base, {1});
  }
  copy_strided(step.dtype, step.dims, result + step.view_offset, step.view_strides, address(step.update), step.update_strides);
}

void CpuExecutable::collect_outputs(RunArgs& args) {
  args.outputs.clear();
  for (const Output& output : outputs_) {
    const Memory& memory = plan_.memories[output.memory];
    if (output.is_input) {
      args.outputs.push_back(args.inputs[memory.parameter]);
      continue;
    }
    bool of_input = memory.home == Memory::Home::kParameter;
    BlockRef block = of_input ? cpu_buffer(args.inputs[memory.parameter]).block() : blocks_[output.memory];
    args.outputs.push_back(std::make_shared<CpuBuffer>(output.type, contiguous_strides(output.type.dims), std::move(block)));
  }
  args.inputs.clear();
}

void CpuExecutable::end_run() {
  for (BlockRef& block : blocks_) {
    block.reset();
  }
  arena_.reset();
  results_.clear();
}

std::string CpuExecutable::text() const {
  std::string result = str("scratch ", plan_.arena_bytes, " bytes\n");
  for (size_t s = 0; s < lines_.size(); ++s) {
    result += str("step ", s, ": ", lines_[s], "\n");
  }
  return result;
}

} // namespace torch_xla::cpu
