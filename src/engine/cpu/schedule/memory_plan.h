// Memory plan: which values share memory, where temporaries lie in the arena, when memory is taken and given back.
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
    kAdopted, // what a library call allocated
  };
  Home home = Home::kArena;
  int64_t bytes = 0;
  int64_t offset = 0; // kArena
  int32_t parameter = -1; // kParameter: position
  int32_t first = 0; // steps between which it holds a value
  int32_t last = 0;
  bool is_output = false;
  // kBlock, kArena: memories of parameters that this one may take over at run time: the first that is donated and that nothing else has
  // taken.
  std::vector<int32_t> donors;
  bool kept = false; // kBlock: a parameter in another dtype or order, which later runs over the same one take as it is
  bool undoable = false; // up to last_fallible only steps write it that can be taken back
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
