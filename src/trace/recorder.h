// Recorder: the traces and settings of a thread, and the lock of a device's traces.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/devices.h"
#include "trace/trace.h"

namespace torch_xla {

class Capture;

// The state that all threads recording on a device share. Its mutex is the recording lock: docs/threads.md. A thread holds at most one
// recording lock. Work under it waits for the GIL only in interrupt::poll(): its waits do not poll for signals, and the engine is chosen
// earlier.
struct DeviceState {
  std::timed_mutex mutex;
  // The traces of all recorders that have recorded on the device; those of ended ones while something is pending. Guarded by mutex.
  std::vector<std::shared_ptr<Trace>> traces;
  std::vector<LazyValue*> donors; // marked for donation (program/donation.h), with a reference each; guarded by mutex
};
DeviceState& device_state(int device);
using RecordingLock = std::unique_lock<std::timed_mutex>;
// Takes the device's recording lock. Throws UserError in a forked child, where a thread of the parent may hold it, and the exception of a
// signal handler that runs during the wait.
RecordingLock lock_recorder(int device);
// Takes it without handling signals: for work that must be done. Not locked if the wait takes longer than the limit.
RecordingLock lock_recorder_uninterrupted(int device, std::optional<std::chrono::milliseconds> limit = std::nullopt);

// The recorder of one thread of the program and its helpers: the threads of autograd, torch.jit.fork and futures' callbacks, which get its
// at::ThreadLocalState from PyTorch. It has a trace on each device and the thread's settings, and lives as long as the thread or such a
// state.
class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  const uint64_t number = ++last_number_; // unique in the program

  // The recorder of the calling thread, or of the thread that it helps.
  static Recorder& current();

  // The trace that it appends to on the device: that of the innermost capture, or its own. The caller holds the recording lock.
  Trace& trace(int device) {
    Slot& slot = slots_[static_cast<size_t>(device)];
    return slot.innermost ? *slot.innermost : make_trace(device);
  }
  // Its own trace; null: it has recorded nothing on the device.
  Trace* find_own_trace(int device) const {
    return slots_[static_cast<size_t>(device)].own.load(std::memory_order_acquire);
  }
  // The innermost capture on the device, or null. The caller holds the recording lock.
  Capture* capture(int device) const {
    return slots_[static_cast<size_t>(device)].capture;
  }
  // Sets the capture with its trace and number; null, null and 0: the thread records into its own trace.
  void set_capture(int device, Capture* capture, Trace* trace, uint32_t number);
  // The number of the calling thread's innermost capture on the device; 0: none. Any thread.
  static uint32_t current_capture(int device) {
    return num_captures_.load(std::memory_order_relaxed) == 0 ? 0 : current().number_of_capture(device);
  }
  // Whether the next operation on the device checks for a cut.
  bool wants_cut(int device) const {
    Trace* trace = find_own_trace(device);
    return !trace || trace->cut().wanted.load(std::memory_order_relaxed);
  }
  // False in eager mode. Default: env::lazy().
  bool is_lazy() const;
  // Sets its own mode; nullopt: the default. Returns the previous mode.
  std::optional<bool> set_lazy(std::optional<bool> on);
  // Whether it records one program: only reads of a value run it before its end.
  std::atomic<bool> records_one_program{false};
  // Counts of its traces' runs, and of programs made or loaded for them.
  std::pair<int64_t, int64_t> counts() const;
  // Its thread has ended: each sync of a device also syncs its trace.
  void leave();

 private:
  enum class Mode : uint8_t { kDefault, kLazy, kEager };
  struct Slot {
    std::atomic<Trace*> own{nullptr};
    Trace* innermost = nullptr; // guarded by the device's recording lock
    Capture* capture = nullptr; // guarded by it
    std::atomic<uint32_t> number{0}; // the capture's
  };

  Trace& make_trace(int device);
  uint32_t number_of_capture(int device) const {
    return slots_[static_cast<size_t>(device)].number.load(std::memory_order_relaxed);
  }

  inline static std::atomic<uint64_t> last_number_{0};
  inline static std::atomic<int> num_captures_{0}; // on all devices, of all recorders
  std::array<Slot, kMaxDevices> slots_{};
  std::vector<std::shared_ptr<Trace>> traces_; // its own; guarded by mutex_
  mutable std::mutex mutex_;
  std::atomic<Mode> mode_{Mode::kDefault};
};

// Call it where the thread's Python part ends: pending work is left as by a thread that has ended. Returns the number of its recorder; 0:
// it has recorded nothing.
uint64_t leave_own_recorder();
// On: operations are recorded. Off: each is handed to the device at once, as with XLA_LAZY=0. For all devices and all threads without a
// mode of their own.
void set_lazy_mode(bool on);

// Recorded nodes of all devices that are still held, for leak checks.
int64_t live_nodes();

} // namespace torch_xla
