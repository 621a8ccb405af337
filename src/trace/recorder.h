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

// What all threads that record on a device share, and its lock, the recording lock: docs/threads.md. A thread holds one recording lock at
// most. What runs under it does not wait for the GIL but in interrupt::poll(): it waits without polling for signals, and the engine has
// been chosen before.
struct DeviceState {
  std::timed_mutex mutex;
  // Of all recorders that have recorded on the device; of one that is gone while something is pending. Guarded by mutex.
  std::vector<std::shared_ptr<Trace>> traces;
  std::vector<LazyValue*> donors; // marked to be given away (program/donation.h), with a reference each; guarded by mutex
};
DeviceState& device_state(int device);
using RecordingLock = std::unique_lock<std::timed_mutex>;
// Takes the device's recording lock. Throws UserError in a forked child, where a thread that does not exist may hold it, and the exception
// of a signal's handler that runs while it waits.
RecordingLock lock_recorder(int device);
// Takes it without handling signals: for work that must be done. Not locked if that takes longer than the limit.
RecordingLock lock_recorder_uninterrupted(int device, std::optional<std::chrono::milliseconds> limit = std::nullopt);

// What a thread of the program records, with the threads that work for it: those of autograd, of torch.jit.fork and of futures' callbacks,
// to which PyTorch hands its at::ThreadLocalState. It has a trace on each device and the thread's settings, and lives as long as such a
// state or its thread.
class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  const uint64_t number = ++last_number_; // of no other recorder of the program

  // The calling thread's, or that of the thread which it works for.
  static Recorder& current();

  // The trace that it appends to on the device: the innermost capture's, or its own. The caller holds the recording lock.
  Trace& trace(int device) {
    Slot& slot = slots_[static_cast<size_t>(device)];
    return slot.innermost ? *slot.innermost : make_trace(device);
  }
  // Its own trace; null: nothing was recorded on the device.
  Trace* find_own_trace(int device) const {
    return slots_[static_cast<size_t>(device)].own.load(std::memory_order_acquire);
  }
  // The innermost capture on the device, or null. The caller holds the recording lock.
  Capture* capture(int device) const {
    return slots_[static_cast<size_t>(device)].capture;
  }
  // With the capture's trace and number; null, null and 0: the thread records into its own trace.
  void set_capture(int device, Capture* capture, Trace* trace, uint32_t number);
  // The number of the calling thread's innermost capture on the device; 0: there is none. Any thread.
  static uint32_t current_capture(int device) {
    return num_captures_.load(std::memory_order_relaxed) == 0 ? 0 : current().number_of_capture(device);
  }
  // Whether the next operation on the device looks where to cut.
  bool wants_cut(int device) const {
    Trace* trace = find_own_trace(device);
    return !trace || trace->cut().wanted.load(std::memory_order_relaxed);
  }
  // False in eager mode. By default as env::lazy().
  bool is_lazy() const;
  // Its own setting; nullopt: the default. Returns the one before.
  std::optional<bool> set_lazy(std::optional<bool> on);
  // Whether it records what has to be one program: no operation runs it before its end but those that read a value.
  std::atomic<bool> records_one_program{false};
  // Runs of its traces so far, and programs that were made or loaded for them.
  std::pair<int64_t, int64_t> counts() const;
  // Its thread has ended: whoever syncs a device syncs its trace too.
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
  std::vector<std::shared_ptr<Trace>> traces_; // their own; guarded by mutex_
  mutable std::mutex mutex_;
  std::atomic<Mode> mode_{Mode::kDefault};
};

// To be called where the thread's Python part ends: what it has pending is left, as by a thread that has ended. Returns its recorder's
// number; 0: it has recorded nothing.
uint64_t leave_own_recorder();
// Whether operations are recorded; otherwise each is handed to the device as it is recorded, as with XLA_LAZY=0. On all devices, for
// threads without a mode of their own.
void set_lazy_mode(bool on);

// Recorded nodes of all devices that are still held, for leak checks.
int64_t live_nodes();

} // namespace torch_xla
