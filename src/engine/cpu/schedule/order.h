// The order of steps: collectives begin as early as possible and run beside other steps.
#pragma once

#include "engine/cpu/schedule/fuse.h"

namespace torch_xla::cpu {

// Moves each collective up to the last of its operands, unless that takes memory early; steps that only later collectives need go behind
// it. Then splits it: kStart, and kWait before the first step that reads its results, or at the end. A collective with nothing to run
// beside it stays a call. Starts and waits keep the order of collectives that all replicas share.
std::vector<Step> order_steps(const LaidOutGraph& laid_out, const std::vector<Step>& steps);

} // namespace torch_xla::cpu
