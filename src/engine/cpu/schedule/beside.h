// Library calls that run beside each other, on a thread each.
#pragma once

#include "engine/cpu/schedule/fuse.h"

namespace torch_xla::cpu {

// Puts calls that run best on one thread (prefers_one_thread()) next to each other where none needs what another gives, at most
// kMaxCallsBeside, and notes in Step::beside how many are left. They go behind the steps that do not need them, all else keeps its order.
// Programs with collectives stay as they are: order_steps() has put what can run beside those there.
std::vector<Step> gather_calls(const LaidOutGraph& laid_out, const std::vector<Step>& steps);

} // namespace torch_xla::cpu
