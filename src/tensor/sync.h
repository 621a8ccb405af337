// Sync: turns the pending trace into a queued run of a program, found by key or compiled.
#pragma once

#include <string>

#include "tensor/cell.h"

namespace torch_xla {

// Why a sync happens: shown in dumps and counted.
enum class SyncCause { kUser, kRead, kCut, kEager };

// The caller holds the device's recording lock. Values that no cell refers to are dropped, all others get buffers. Within
// interrupt::retry() Ctrl-C ends a compile, and leaves all as it was.
void sync_locked(int device, SyncCause cause);
// Called before an operation is recorded when RecorderState::wants_cut is set: cuts a trace that has grown past its limits at the next
// repeat of its loop; with XLA_LAZY=0 syncs always. Takes the device's recording lock.
void cut_long_trace(int device);
// Traces are looked at for the first time at this many nodes.
constexpr size_t kFirstTraceCheck = 1024;
// Replaces the content of the cell, a buffer, by the same bytes seen as `type`, for dtypes without rows: waits. The caller holds the
// recording lock of the cell's device.
void reinterpret_buffer_locked(Cell& cell, const Type& type);
// To be called, without a recording lock, where an error of a run of the device or an interrupt is in flight to the user: what is recorded
// from now on takes nothing that it cost.
void settle_after_error(int device);

} // namespace torch_xla
