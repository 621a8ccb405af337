// What each step does to memory, as the memory plan needs to know it.
#pragma once

#include <vector>

#include "engine/cpu/schedule/kernel_builder.h"

namespace torch_xla::cpu {

// Of one step. All ids are roots.
struct StepAccess {
  std::vector<ValueId> reads;
  std::vector<ValueId> writes;
  // The step may write `to` over `from`, where they have the same size: it reads each element for the last time before it writes it.
  struct InPlace {
    ValueId from;
    ValueId to;
  };
  std::vector<InPlace> in_place;
  bool adopts = false; // the writes' memory comes from the step itself
  bool can_fail = false; // by what its operands hold, or for want of memory
  bool is_update = false; // in place, it writes a part of the memory only
  bool can_be_undone = false; // in place, what it writes over can be taken back: an update, or a call that writes a part
  bool converts = false; // a kernel that gives parameters another dtype or order, for the program itself only
  int32_t until = -1; // the step to whose end it reads and writes: itself; of kStart its kWait; of calls beside each other the last
};

// By step. `kernels` are parallel to the steps; with `fusion` off library calls allocate all their results.
std::vector<StepAccess> find_accesses(
    const LaidOutGraph& laid_out, const std::vector<Step>& steps, const std::vector<BuiltKernel>& kernels, bool fusion);

} // namespace torch_xla::cpu
