// Buffers of a PJRT engine: row-major memory of a device, which the host cannot read.
#pragma once

#include <unistd.h>

#include <atomic>

#include "engine/pjrt/client.h"

namespace torch_xla::pjrt {

// Bytes of a device's live buffers, for plugins that do not count. Such are those of the CPU, which the host's memory limits.
class MemoryCount {
 public:
  explicit MemoryCount(int device) : device_(device) {}
  int device() const {
    return device_;
  }
  void add(int64_t bytes) {
    int64_t now = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void reset_peak() {
    peak_.store(0, std::memory_order_relaxed);
    add(0);
  }
  EngineMemoryInfo info() const {
    int64_t host = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
    return {used_.load(std::memory_order_relaxed), host, peak_.load(std::memory_order_relaxed)};
  }

 private:
  const int device_;
  std::atomic<int64_t> used_{0};
  std::atomic<int64_t> peak_{0};
};

class PjrtBuffer final : public EngineBuffer {
 public:
  // A buffer of the count's device; the count outlives it.
  PjrtBuffer(const Type& type, BufferHandle handle, MemoryCount& count)
      : EngineBuffer(type, contiguous_strides(type.dims), count.device()), handle_(std::move(handle)), count_(count) {
    count_.add(type.nbytes());
  }
  ~PjrtBuffer() override {
    count_.add(-type().nbytes());
  }
  void* host_pointer() const override {
    return nullptr;
  }
  bool sole_owner() const override {
    return true;
  }
  const BufferHandle& handle() const {
    return handle_;
  }

 private:
  BufferHandle handle_;
  MemoryCount& count_;
};

} // namespace torch_xla::pjrt
