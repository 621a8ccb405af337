// Each step's effects on memory, for the memory plan.
#pragma once

#include <vector>

#include "engine/cpu/schedule/kernel_builder.h"

namespace torch_xla::cpu {

// One step's effects. All ids are roots.
struct StepAccess {
  std::vector<ValueId> reads;
  std::vector<ValueId> writes;
  // The step may write `to` over `from` if they have the same size: it reads each element for the last time before it writes it.
  struct InPlace {
    ValueId from;
    ValueId to;
  };
  std::vector<InPlace> in_place;
  bool adopts = false; // the writes' memory comes from the step itself
  bool can_fail = false; // for the values of its operands, or for lack of memory
  bool is_update = false; // in place it writes only a part of the memory
  bool can_be_undone = false; // writes in place can be undone: an update, or a call that writes a part
  bool converts = false; // a kernel that converts or reorders parameters, for the program itself only
  int32_t until = -1; // it reads and writes until the end of this step: itself; for kStart its kWait; for calls beside each other the last
};

// The effects by step. `kernels` are parallel to the steps; with `fusion` off library calls allocate all their results.
std::vector<StepAccess> find_accesses(
    const LaidOutGraph& laid_out, const std::vector<Step>& steps, const std::vector<BuiltKernel>& kernels, bool fusion);

} // namespace torch_xla::cpu
