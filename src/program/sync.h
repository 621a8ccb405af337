// Sync: turns pending traces into queued runs of programs, found by key or compiled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "program/program_cache.h"
#include "runtime/executor.h"

namespace torch_xla {

class Recorder;
class Trace;

// Why a sync happens.
enum class SyncCause {
  kUser, // torch_xla.sync(), xm.mark_step(), an event
  kOptimizer, // the end of an optimizer's step
  kLoader, // the end of a loader's step
  kStepTrace, // the end of a profiler's step
  kCompile, // the end of a function that torch_xla.compile() runs as a program of its own,
  kBeforeCompile, // and its beginning
  kRead, // of a value
  kCut, // of a long trace
  kEager, // XLA_LAZY=0
  kCollective, // for which other replicas may wait
  kReplay, // of a captured step
};
constexpr int kNumSyncCauses = 11;
const char* cause_text(SyncCause cause); // "user torch_xla.sync"

// Runs what the calling thread, or one that has ended, has pending on the device; with wait also waits for all runs. Throws the error of a
// failed compile or run, and UserError for a device that does not exist. Any thread; call without the GIL.
void sync(int device, bool wait = false, SyncCause cause = SyncCause::kUser);
// The user's sync at the end of a step, in either language: sync(), counted as MarkStep. XLA_SYNC_WAIT=1 waits always.
void mark_step(int device, bool wait, SyncCause cause = SyncCause::kUser);
// Queues everything pending on the device if a collective is among it, for which other replicas may wait. Throws the error of a failed
// compile, none of earlier runs. Any thread; call without the GIL.
void sync_collectives(int device);
// Number of the device's trace and how many nodes it has, if a collective is among them.
std::optional<std::pair<uint64_t, size_t>> pending_collectives(int device);
// Drops the programs that are in memory, of all devices: each trace is compiled again, or read from disk. Those that run go on. Any
// thread; call without the GIL.
void forget_programs();
// Waits until all queued runs of the device have ended; rethrows the first error that nobody has seen. Pending nodes stay pending.
void wait_device_ops(int device);

// The device's pending trace as text, for dumps.
std::string pending_graph_text(int device);
// The name of what this thread records, for analyses and dumps: that of the function which torch_xla.compile() runs. Empty: none.
std::string& graph_name();

// The caller holds the recording lock of the trace's device. Values that no cell refers to are dropped, all others get buffers. Within
// interrupt::retry() Ctrl-C ends a compile, and leaves all as it was.
void sync_locked(Trace& trace, SyncCause cause);
// Called before an operation is recorded when CutPlan::wanted is set: syncs the recorder's trace where is_cut_now(). Takes the device's
// recording lock.
void cut_long_trace(Recorder& recorder, int device);
// A run of the program without inputs, outputs and numbers, and its way to the device. The caller holds the recording lock.
Run new_run(const Program& program);
uint64_t hand_over(int device, Run run);
// To be called, without a recording lock, where an error of a run of the device or an interrupt is in flight to the user: what is recorded
// from now on takes nothing that it cost.
void settle_after_error(int device);

} // namespace torch_xla
