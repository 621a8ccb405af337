// The backward half of fusion: the values that groups must store, and the steps made of the groups.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cpu/kernel.h"
#include "engine/cpu/schedule/grouping.h"

namespace torch_xla::cpu {

struct Step {
  StepKind kind = StepKind::kKernel;
  int32_t node = -1; // all but kKernel; kStart and its kWait have the same
  int32_t beside = 0; // kLibrary: number of following steps that run at the same time
  // kKernel. Operands from outside the body are loads or scalars. Ids are in topological order.
  KernelForm form = KernelForm::kPointwise;
  Dims domain; // the element values' extents, leading extents of 1 left out
  uint32_t reduced = 0; // bit d: reductions run over domain dimension d
  std::vector<ValueId> body; // ascending
  std::vector<ValueId> stores; // of the body; ascending
};

// Steps in the order in which they run. Values that no stored value depends on are left out; cheap ones are computed in each kernel that
// uses them.
std::vector<Step> fuse(const LaidOutGraph& laid_out, const Recompute& recompute, const Groups& groups, bool enabled);

} // namespace torch_xla::cpu
