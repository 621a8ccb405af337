// Cuts of traces that grow without a sync.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace torch_xla {

class Trace;

// Traces are looked at for the first time at this many nodes, or bytes of inputs.
constexpr size_t kFirstTraceCheck = 1024;
constexpr int64_t kFirstInputCheck = int64_t{256} << 20;

// When a trace is looked at next. Guarded by the device's recording lock, but for `wanted`.
struct CutPlan {
  size_t next_check = kFirstTraceCheck; // nodes
  int64_t next_input_check = kFirstInputCheck; // bytes of inputs
  bool is_planned = false; // next_check is the place of the cut
  std::atomic<bool> wanted{true}; // the first operation looks whether

  // To be looked at as an empty trace.
  void start_again() {
    next_check = kFirstTraceCheck;
    next_input_check = kFirstInputCheck;
    is_planned = false;
    wanted.store(true, std::memory_order_relaxed);
  }
};

// Whether the trace is cut before its next node: where it has grown past its limits, at the next repeat of its loop; in eager mode always.
// The caller holds the device's recording lock.
bool is_cut_now(Trace& trace, bool is_lazy);
// Whether the trace has grown so far that it is looked at.
bool is_due(Trace& trace);

} // namespace torch_xla
