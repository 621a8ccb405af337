// An event: a mark in a device's queue, with the time when the device reached it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace torch_xla {

// Shared by the event's owner and the mark that is queued for it. Reached once, by the thread that runs the device's programs.
struct EventMark {
  explicit EventMark(int of_device) : device(of_device) {}
  const int device;
  std::atomic<bool> queued{false};
  std::atomic<int64_t> reached_ns{0}; // 0 until the device reaches it
};

// Any thread, with the GIL or without.
class Event {
 public:
  // A later record replaces an earlier one. An event with times queues everything pending, then a mark. An event without times does so only
  // at a query, so a step with events stays one program.
  void record(int device, bool timed);
  // True when the device has reached the mark, or nothing was recorded.
  bool query() const;
  // Blocks until the mark is reached; rethrows the error of a failed run.
  void wait() const;
  // Milliseconds from this event to `end`; both must have been recorded and reached.
  double elapsed_ms(const Event& end) const;

 private:
  mutable std::mutex mutex_; // guards mark_
  std::shared_ptr<EventMark> mark_;

  std::shared_ptr<EventMark> mark() const;
};

} // namespace torch_xla
