// Sync: turns the pending trace into a queued run of a program, found by key or compiled.
#pragma once

#include "runtime/executor.h"
#include "tensor/api.h"
#include "tensor/program_cache.h"

namespace torch_xla {

class Trace;

// The caller holds the recording lock of the trace's device. Values that no cell refers to are dropped, all others get buffers. Within
// interrupt::retry() Ctrl-C ends a compile, and leaves all as it was.
void sync_locked(Trace& trace, SyncCause cause);
// A run of the program without inputs, outputs and numbers, and its way to the device. The caller holds the recording lock.
Run new_run(const Program& program);
uint64_t hand_over(int device, Run run);
// To be called, without a recording lock, where an error of a run of the device or an interrupt is in flight to the user: what is recorded
// from now on takes nothing that it cost.
void settle_after_error(int device);

} // namespace torch_xla
