// Cuts of traces that grow without a sync.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_xla {

// Traces are looked at for the first time at this many nodes, or bytes of inputs.
constexpr size_t kFirstTraceCheck = 1024;
constexpr int64_t kFirstInputCheck = int64_t{256} << 20;
// Called before an operation is recorded when RecorderState::wants_cut is set: cuts a trace that has grown past its limits at the next
// repeat of its loop; with XLA_LAZY=0 syncs always. Takes the device's recording lock.
void cut_long_trace(int device);

} // namespace torch_xla
