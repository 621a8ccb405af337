// The memory of one run of a program: taken and let go step by step, and given back as it was where the run fails.
#pragma once

#include <vector>

#include "engine/cpu/program/plan.h"
#include "engine/engine.h"

namespace torch_xla::cpu {

// For one run at a time, from start() to end().
class RunMemory {
 public:
  // The plan outlives it. `read_packed`, by memory: whether no step needs what lies there as it is (find_read_packed()).
  RunMemory(const Plan& plan, std::vector<bool> read_packed, int device);

  void start(RunArgs& args);
  // Takes what the step needs.
  void take(int32_t step, RunArgs& args);
  // Lets go what no later step needs.
  void release(int32_t step, RunArgs& args);
  // Before a step behind the last one that may fail: what has been written in place needs no undoing any more.
  void commit_writes(int32_t step, RunArgs& args);
  // Of a run that has failed: inputs of `restored` are as they were, or null.
  void restore(RunArgs& args);
  void end();

  // Whether memory of `restored` is being written: from then on the run does not fail.
  bool is_committed() const {
    return committed_;
  }
  // Of what a step is about to write over in memory that may have to be restored; null where nothing has to.
  std::vector<Undo>* undo_of(int32_t memory) {
    return saves_[memory] && !committed_ ? &undo_ : nullptr;
  }
  bool is_read_packed(int32_t memory) const {
    return read_packed_[memory];
  }
  char* base(int32_t memory) const {
    return base_[memory];
  }
  char* address(const MemoryRef& ref) const {
    int64_t moved = ref.moved_by < 0 ? 0 : static_cast<int64_t>(numbers_[ref.moved_by]) * ref.moved_bytes;
    return base_[ref.memory] + ref.byte_offset + moved;
  }
  // Empty for a parameter and in the arena.
  const BlockRef& block(int32_t memory) const {
    return blocks_[memory];
  }
  // Of a value that a step has brought with it.
  void set_block(int32_t memory, BlockRef block);
  // For the step. Where there is no room the error names its operation and line.
  BlockRef take_block(int64_t bytes, int32_t step);

 private:
  char* place_of(const Block& block, int32_t memory) const;
  int32_t largest_in_arena() const;
  void take_donor(int32_t step, int32_t memory, RunArgs& args);
  void commit(int32_t step, RunArgs& args);

  const Plan& plan_;
  const std::vector<bool> read_packed_;
  const int device_;
  Pool& pool_; // the device's
  std::vector<char*> base_; // by memory
  std::vector<BlockRef> blocks_; // by memory: what the run owns
  std::vector<bool> saves_; // by memory: what is written over is saved
  std::vector<bool> donatable_; // by parameter
  const uint64_t* numbers_ = nullptr; // the run's scalars
  BlockRef arena_;
  bool committed_ = false;
  std::vector<Undo> undo_; // the last write last
};

} // namespace torch_xla::cpu
