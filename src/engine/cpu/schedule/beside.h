// Library calls that run beside each other, one thread each.
#pragma once

#include "engine/cpu/schedule/fuse.h"

namespace torch_xla::cpu {

// Puts independent calls that run best on one thread (prefers_one_thread()) next to each other, at most kMaxCallsBeside, and notes in
// Step::beside how many follow. They move behind the steps that do not need them; all other steps keep their order. Programs with
// collectives stay as they are: order_steps() has placed steps beside these.
std::vector<Step> gather_calls(const LaidOutGraph& laid_out, const std::vector<Step>& steps);

} // namespace torch_xla::cpu
