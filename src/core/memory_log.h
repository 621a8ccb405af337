// Who is told as memory of the devices is taken and given back: profilers of memory.
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

// Whom a thread works for: what a run allocates is told on behalf of the thread that queued it. Null: nobody who wants to know.
using Caller = std::shared_ptr<void>;

// Called on any thread, several at a time, without the locks of allocators; takes no GIL and allocates nothing of a device.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_change(const Change& change) = 0;
  // Of the calling thread, for work on the device that another thread is to do.
  virtual Caller caller(int device) = 0;
  // Makes the calling thread work for another one; returns for whom it did before.
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
