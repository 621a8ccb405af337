// An event: a mark in a device's queue that carries the time at which the device reached it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace torch_xla {

// Shared by the event's owner and the mark that is queued for it. Reached once, by the thread that runs the device's programs.
struct EventMark {
  explicit EventMark(int of_device) : device(of_device) {}
  const int device;
  std::atomic<int64_t> reached_ns{0}; // 0 while the device has not come to it
};

class Event {
 public:
  // Queues everything pending and then a mark. A later record replaces an earlier one.
  void record(int device);
  // True when the device has reached the mark, or nothing was recorded.
  bool query() const;
  // Blocks until the mark is reached; rethrows the error of a failed run.
  void wait() const;
  // Milliseconds from this event to `end`; both must have been recorded and reached.
  double elapsed_ms(const Event& end) const;

 private:
  std::shared_ptr<EventMark> mark_;
};

} // namespace torch_xla
