// Memory plan: which values share memory, where temporaries lie in the arena, when memory is taken and given back.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cpu/layout.h"

namespace torch_xla::cpu {

// What one step does to memory. All ids are roots.
struct StepAccess {
  std::vector<ValueId> reads;
  std::vector<ValueId> writes;
  // The step may write `to` over `from`: same size, and it reads each element for the last time before it writes it.
  struct InPlace {
    ValueId from;
    ValueId to;
  };
  std::vector<InPlace> in_place;
  bool adopts = false; // the writes' memory comes from the step itself
  bool can_fail = false; // by what its operands hold, or for want of memory
  bool is_update = false; // in place, it writes a part of the memory only
};

struct Memory {
  enum class Home : uint8_t {
    kParameter, // of the caller
    kArena, // one block for all temporaries of a run
    kBlock, // a block of its own: part of an output
    kAdopted, // what a library call allocated
  };
  Home home = Home::kArena;
  int64_t bytes = 0;
  int64_t offset = 0; // kArena
  int32_t parameter = -1; // kParameter: position
  int32_t first = 0; // steps between which it holds a value
  int32_t last = 0;
  bool is_output = false;
  // kBlock, kArena: memories of parameters that this one may take over at run time, if donated.
  std::vector<int32_t> donors;
  bool undoable = false; // up to last_fallible only updates write it, which can be taken back
};

struct MemoryPlan {
  std::vector<Memory> memories;
  std::vector<int32_t> memory_of; // by value: index into memories; -1 where nothing is stored
  std::vector<std::vector<int32_t>> taken; // by step: kBlock memories to allocate before it, and those with donors
  std::vector<std::vector<int32_t>> released; // by step: memories to let go after it
  int64_t arena_bytes = 0;
  int32_t last_fallible = -1; // step; behind it the run cannot fail once it has its memory
};

MemoryPlan plan_memory(const LaidOutGraph& laid_out, const std::vector<StepAccess>& steps);

} // namespace torch_xla::cpu
