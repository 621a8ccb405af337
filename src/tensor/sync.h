// Sync: turns the pending trace into a queued run of a program, found by key or compiled.
#pragma once

#include <string>

#include "tensor/cell.h"

namespace torch_xla {

// Why a sync happens: shown in dumps and counted.
enum class SyncCause { kUser, kRead, kCut, kEager };

// The caller holds the recording lock. Values that no cell refers to are dropped, all others get buffers. Within interrupt::retry() Ctrl-C
// ends a compile, and leaves all as it was.
void sync_locked(SyncCause cause);
// Called before an operation is recorded when RecorderState::wants_cut is set: cuts a trace that has grown past its limits at the next
// repeat of its loop; with XLA_LAZY=0 syncs always. Takes the recording lock.
void cut_long_trace();
// Traces are looked at for the first time at this many nodes.
constexpr size_t kFirstTraceCheck = 1024;
// Replaces the content of the cell, a buffer, by the same bytes seen as `type`, for dtypes without rows: waits. The caller holds the
// recording lock.
void reinterpret_buffer_locked(Cell& cell, const Type& type);
// To be called, without the recording lock, where an error of a run or an interrupt is in flight to the user: what is recorded from now on
// takes nothing that it cost.
void settle_after_error();
// "file.py:12 in forward" of a recorded location; empty when unknown.
std::string location_text(int64_t id);

} // namespace torch_xla
