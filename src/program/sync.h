// Sync: turns pending traces into queued runs of cached or compiled programs.
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
  kCompile, // the end of a function that torch_xla.compile() runs as one program
  kBeforeCompile, // and its beginning
  kRead, // of a value
  kCut, // of a long trace
  kEager, // XLA_LAZY=0
  kCollective, // other replicas may wait for it
  kReplay, // of a captured step
};
constexpr int kNumSyncCauses = 11;
const char* cause_text(SyncCause cause); // "user torch_xla.sync"

// Runs the pending work of the calling thread and of ended threads on the device; with `wait` also waits for all runs. Throws the error of
// a failed compile or run, and UserError for a device that does not exist. Any thread; call without the GIL.
void sync(int device, bool wait = false, SyncCause cause = SyncCause::kUser);
// The user's sync at the end of a step, in Python and C++: sync(), counted as MarkStep. XLA_SYNC_WAIT=1 always waits.
void mark_step(int device, bool wait, SyncCause cause = SyncCause::kUser);
// Queues everything pending on the device if it includes a collective, for which other replicas may wait. Throws the error of a failed
// compile, none of earlier runs. Any thread; call without the GIL.
void sync_collectives(int device);
// Number and count of nodes of the device's pending trace with collectives; nullopt: none.
std::optional<std::pair<uint64_t, size_t>> pending_collectives(int device);
// Drops the programs in memory, of all devices: each trace is compiled or read from disk again. Runs in progress go on. Any thread; call
// without the GIL.
void forget_programs();
// Waits for the end of all queued runs of the device; rethrows the first unreported error. Pending nodes stay pending.
void wait_device_ops(int device);

// The device's pending trace as text, for dumps.
std::string pending_graph_text(int device);
// Name of this thread's recording, for analyses and dumps: that of the function run by torch_xla.compile(). Empty: none.
std::string& graph_name();

// The caller holds the recording lock of the trace's device. Drops values without a cell; all others get buffers. Within interrupt::retry()
// Ctrl-C ends a compile and leaves everything unchanged.
void sync_locked(Trace& trace, SyncCause cause);
// Call it before recording an operation if CutPlan::wanted is set: syncs the recorder's trace if is_cut_now(). Takes the device's recording
// lock.
void cut_long_trace(Recorder& recorder, int device);
// Call it, without a recording lock, while an error of a run of the device or an interrupt is on its way to the user: later recordings use
// no value lost by it.
void settle_after_error(int device);

} // namespace torch_xla
