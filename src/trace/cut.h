// Cuts of traces that grow without a sync.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace torch_xla {

class Trace;

// The first check of a trace is at this many nodes, or bytes of inputs.
constexpr size_t kFirstTraceCheck = 1024;
constexpr int64_t kFirstInputCheck = int64_t{256} << 20;

// The next check of a trace. The device's recording lock guards all but `wanted`.
struct CutPlan {
  size_t next_check = kFirstTraceCheck; // nodes
  int64_t next_input_check = kFirstInputCheck; // bytes of inputs
  bool is_planned = false; // next_check is the cut itself
  std::atomic<bool> wanted{true}; // the next operation checks for a cut

  // Resets to the plan of an empty trace.
  void start_again() {
    next_check = kFirstTraceCheck;
    next_input_check = kFirstInputCheck;
    is_planned = false;
    wanted.store(true, std::memory_order_relaxed);
  }
};

// Whether to cut the trace before its next node: past its limits, at the next repeat of its loop; in eager mode always. The caller holds
// the device's recording lock.
bool is_cut_now(Trace& trace, bool is_lazy);
// Whether the trace has grown enough for a check.
bool is_due(Trace& trace);

} // namespace torch_xla
