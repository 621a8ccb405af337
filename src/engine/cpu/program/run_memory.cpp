// Taking and letting go by the plan, donors, and the moment from which a run does not fail any more.
#include "engine/cpu/program/run_memory.h"

#include <algorithm>

#include "core/errors.h"
#include "engine/cpu/library/step_error.h"

namespace torch_xla::cpu {

RunMemory::RunMemory(const Plan& plan, std::vector<bool> read_packed, int device)
    : plan_(plan),
      read_packed_(std::move(read_packed)),
      device_(device),
      pool_(Pool::get(device)),
      base_(plan.memory.memories.size()),
      blocks_(plan.memory.memories.size()),
      saves_(plan.memory.memories.size()),
      donatable_(plan.num_parameters) {}

void RunMemory::start(RunArgs& args) {
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
      base_[m] = place_of(*cpu_buffer(input).block(), static_cast<int32_t>(m));
      // A program that returns its input as it is gives two values one engine buffer.
      donatable_[memory.parameter] = args.donated[memory.parameter] && input.use_count() == 1 && input->sole_owner();
    } else if (memory.home == Memory::Home::kArena) {
      base_[m] = arena + memory.offset;
    }
  }
}

BlockRef RunMemory::take_block(int64_t bytes, int32_t step) {
  try {
    return std::make_shared<Block>(pool_, static_cast<size_t>(bytes));
  } catch (...) {
    rethrow_as_step_error(plan_.steps[step].name, plan_.steps[step].location);
  }
}

// The step that writes the largest value there.
int32_t RunMemory::largest_in_arena() const {
  auto bytes_in_arena = [](const Memory& memory) { return memory.home == Memory::Home::kArena ? memory.bytes : -1; };
  return std::ranges::max_element(plan_.memory.memories, {}, bytes_in_arena)->first;
}

void RunMemory::take(int32_t step, RunArgs& args) {
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

// What a failed run must restore is written behind all that can fail, or by updates that are saved.
void RunMemory::take_donor(int32_t step, int32_t m, RunArgs& args) {
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

// All memory that is still to be taken is taken before the first write that cannot be undone.
void RunMemory::commit(int32_t step, RunArgs& args) {
  if (committed_) {
    return;
  }
  committed_ = true;
  try {
    for (int32_t later = step; later < static_cast<int32_t>(plan_.steps.size()); ++later) {
      take(later, args);
    }
  } catch (...) {
    committed_ = false; // nothing is written yet
    throw;
  }
}

void RunMemory::commit_writes(int32_t step, RunArgs& args) {
  if (step > plan_.memory.last_fallible && !undo_.empty()) {
    commit(step, args);
  }
}

void RunMemory::restore(RunArgs& args) {
  for (; !committed_ && !undo_.empty(); undo_.pop_back()) {
    undo_.back()();
  }
  for (size_t i = 0; committed_ && i < args.inputs.size(); ++i) {
    if (!donatable_[i]) {
      args.inputs[i].reset();
    }
  }
}

void RunMemory::release(int32_t step, RunArgs& args) {
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

// What is read packed may stay away.
char* RunMemory::place_of(const Block& block, int32_t memory) const {
  return read_packed_[memory] ? block.address() : static_cast<char*>(block.data());
}

void RunMemory::set_block(int32_t memory, BlockRef block) {
  base_[memory] = place_of(*block, memory);
  blocks_[memory] = std::move(block);
}

void RunMemory::end() {
  for (BlockRef& block : blocks_) {
    block.reset();
  }
  arena_.reset();
  undo_.clear();
  committed_ = false;
}

} // namespace torch_xla::cpu
