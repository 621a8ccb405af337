// The backward half of fusion: what groups must store for the outputs, and the steps that this makes of them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cpu/kernel.h"
#include "engine/cpu/schedule/grouping.h"

namespace torch_xla::cpu {

struct Step {
  StepKind kind = StepKind::kKernel;
  int32_t node = -1; // all but kKernel; the same of kStart and its kWait
  int32_t beside = 0; // kLibrary: so many steps behind it run at the same time
  // kKernel. Operands of the body that are not in it are loads or scalars. Ids are a topological order.
  KernelForm form = KernelForm::kPointwise;
  Dims domain; // the element values' extents, leading extents of 1 left out
  uint32_t reduced = 0; // bit d: reductions run over domain dimension d
  std::vector<ValueId> body; // ascending
  std::vector<ValueId> stores; // of the body; ascending
};

// Steps in the order in which they run. Values that nothing stored depends on are left out, cheap ones are computed in each kernel that
// uses them.
std::vector<Step> fuse(const LaidOutGraph& laid_out, const Recompute& recompute, const Groups& groups, bool enabled);

} // namespace torch_xla::cpu
