// The order of steps: collectives begin as early as they can, and run beside other steps.
#pragma once

#include "engine/cpu/schedule/fuse.h"

namespace torch_xla::cpu {

// Moves each collective up to where what it reads exists, if that takes no memory early: what only later ones need goes behind it. Then it
// is split: kStart, and kWait before the first step that reads its results, or at the end; one that has nothing to run beside it stays a
// call. Collectives keep their order, which all replicas share, and are waited for in it.
std::vector<Step> order_steps(const LaidOutGraph& laid_out, const std::vector<Step>& steps);

} // namespace torch_xla::cpu
