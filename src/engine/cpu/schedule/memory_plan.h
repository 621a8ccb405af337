// Memory plan: shared memory of values, places of temporaries in the arena, and when memory is taken and released.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cpu/schedule/access.h"

namespace torch_xla::cpu {

struct Memory {
  enum class Home : uint8_t {
    kParameter, // of the caller
    kArena, // one block for all small temporaries of a run
    kBlock, // a block of its own: part of an output, or a large temporary
    kAdopted, // allocated by a library call
  };
  Home home = Home::kArena;
  int64_t bytes = 0;
  int64_t offset = 0; // kArena
  int32_t parameter = -1; // kParameter: position
  int32_t first = 0; // it holds a value from step `first` to `last`
  int32_t last = 0;
  bool is_output = false;
  // kBlock, kArena: parameters' memories that it may take over at run time: the first one that is donated and not taken yet.
  std::vector<int32_t> donors;
  bool kept = false; // kBlock: a parameter in another dtype or order, reused by later runs with the same parameter
  bool undoable = false; // all writes up to last_fallible can be undone
};

struct MemoryPlan {
  std::vector<Memory> memories;
  std::vector<int32_t> memory_of; // by value: index into memories; -1: not stored
  std::vector<std::vector<int32_t>> taken; // by step: kBlock memories to allocate before it, and those with donors
  std::vector<std::vector<int32_t>> released; // by step: memories to release after it
  int64_t arena_bytes = 0;
  int32_t last_fallible = -1; // the last step that can fail, once the run has its memory
};

MemoryPlan plan_memory(const LaidOutGraph& laid_out, const std::vector<StepAccess>& steps);

} // namespace torch_xla::cpu
