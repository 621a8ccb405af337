// LazyValue: a value that cells refer to: a node of the pending trace, after a sync a buffer.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/free_list.h"
#include "runtime/buffer.h"

namespace torch_xla {

class Trace;

// Reference counted by hand: the pending trace holds one reference, each cell another, so a value is alive while the count is above one.
// Deleters only decrement, on any thread. The device's recording lock guards all other members.
class LazyValue : public FreeListed<LazyValue> {
 public:
  // With two references: the trace's and the caller's.
  static LazyValue* pending(int32_t id, Trace* trace) {
    return new LazyValue(id, trace, 2);
  }
  // With one reference, the caller's.
  static LazyValue* ready(BufferRef buffer) {
    auto* value = new LazyValue(-1, nullptr, 1);
    value->set_buffer(std::move(buffer));
    return value;
  }

  void ref() {
    refs_.fetch_add(1, std::memory_order_relaxed);
  }
  void unref() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete this;
    }
  }
  int32_t refs() const {
    return refs_.load(std::memory_order_acquire);
  }
  // Position in the pending trace; meaningless once there is a buffer.
  int32_t id() const {
    return id_;
  }
  // The pending trace; null once there is a buffer.
  Trace* trace() const {
    return trace_;
  }
  const BufferRef& buffer() const {
    return buffer_;
  }
  void set_buffer(BufferRef buffer) {
    buffer_ = std::move(buffer);
    trace_ = nullptr;
    buffer_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  // Only for a value that has a buffer.
  void replace_buffer(BufferRef buffer) {
    buffer_->owners.fetch_sub(1, std::memory_order_acq_rel);
    set_buffer(std::move(buffer));
  }

 private:
  LazyValue(int32_t id, Trace* trace, int32_t refs) : refs_(refs), id_(id), trace_(trace) {}
  ~LazyValue() {
    if (buffer_) {
      buffer_->owners.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  std::atomic<int32_t> refs_;
  int32_t id_;
  Trace* trace_;
  BufferRef buffer_;
};

} // namespace torch_xla
