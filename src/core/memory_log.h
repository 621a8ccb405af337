// Reports allocations and frees of device memory to a listener: profilers of memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace torch_xla::memory_log {

struct Change {
  int device = 0;
  const void* address = nullptr; // the same when it is given back
  int64_t bytes = 0; // negative: given back
  int64_t used = 0; // of the device, with this change
  int64_t reserved = 0; // used, or kept for later
};

// The thread on whose behalf a thread allocates: a run's allocations count for the thread that queued it. Null: no listener.
using Caller = std::shared_ptr<void>;

// Called on any thread, several at a time, without the locks of allocators; takes no GIL and allocates nothing of a device.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_change(const Change& change) = 0;
  // The caller to give to another thread that does the calling thread's work on the device.
  virtual Caller caller(int device) = 0;
  // Makes the calling thread work for `caller`; returns the caller before.
  virtual Caller exchange(Caller caller) = 0;
};

namespace detail {
inline std::atomic<Listener*> listener{nullptr};
} // namespace detail

// Null where nobody listens; never destroyed. One relaxed load.
inline Listener* listener() {
  return detail::listener.load(std::memory_order_relaxed);
}
// Null: nobody listens from now on; calls under way may still end.
inline void set_listener(Listener* listener) {
  detail::listener.store(listener, std::memory_order_relaxed);
}

inline Caller caller(int device) {
  Listener* told = listener();
  return told ? told->caller(device) : nullptr;
}

// While it lives the thread works for the caller, if there is one.
class CallerScope {
 public:
  explicit CallerScope(Caller caller) : listener_(caller ? listener() : nullptr) {
    if (listener_) {
      before_ = listener_->exchange(std::move(caller));
    }
  }
  ~CallerScope() {
    if (listener_) {
      listener_->exchange(std::move(before_));
    }
  }
  CallerScope(const CallerScope&) = delete;
  CallerScope& operator=(const CallerScope&) = delete;

 private:
  Listener* listener_;
  Caller before_;
};

} // namespace torch_xla::memory_log
