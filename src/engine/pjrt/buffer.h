// Buffers of a PJRT engine: row-major memory of a device, which the host cannot read.
#pragma once

#include "core/memory_log.h"
#include "engine/memory_count.h"
#include "engine/pjrt/client.h"

namespace torch_xla::pjrt {

// Bytes of a device's live buffers, for plugins that do not count them: CPU plugins, limited by the host's memory.
class MemoryCount {
 public:
  explicit MemoryCount(int device) : device_(device) {}
  int device() const {
    return device_;
  }
  // Counts a new buffer, or a destroyed one (negative).
  void add(const void* buffer, int64_t bytes) {
    bytes_.add(bytes);
    if (memory_log::Listener* listener = memory_log::listener()) {
      listener->on_change({device_, buffer, bytes, bytes_.used(), bytes_.used()});
    }
  }
  void reset_peak() {
    bytes_.reset_peak();
  }
  EngineMemoryInfo info() const {
    return {bytes_.used(), host_memory(), bytes_.peak()};
  }

 private:
  const int device_;
  PeakCount bytes_;
};

class PjrtBuffer final : public EngineBuffer {
 public:
  // A buffer of the count's device; the count outlives it.
  PjrtBuffer(const Type& type, BufferHandle handle, MemoryCount& count)
      : EngineBuffer(type, contiguous_strides(type.dims), count.device()), handle_(std::move(handle)), count_(count) {
    count_.add(this, type.nbytes());
  }
  ~PjrtBuffer() override {
    count_.add(this, -type().nbytes());
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
