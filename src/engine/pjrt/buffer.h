// Buffers of a PJRT engine: row-major memory of its devices, which the host cannot read.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

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
using MemoryCounts = std::deque<MemoryCount>; // by device: buffers refer to them

// Memory of the host, given back with the object.
struct HostMemory {
  const void* data = nullptr;
  Dims strides; // dense, in elements; empty: row-major
  std::function<void()> release;

  HostMemory(const void* data, Dims strides, std::function<void()> release)
      : data(data), strides(std::move(strides)), release(std::move(release)) {}
  HostMemory(HostMemory&&) = delete;
  ~HostMemory() {
    release();
  }
};

using Tiles = std::vector<BufferHandle>;
inline Tiles one_tile(BufferHandle handle) {
  Tiles tiles;
  tiles.push_back(std::move(handle));
  return tiles;
}

class PjrtBuffer final : public EngineBuffer {
 public:
  // On the device alone, or a tile on each one from it on. The counts outlive the buffer.
  PjrtBuffer(const Type& type, Tiles tiles, MemoryCounts& counts, int device, ShardingRef sharding = nullptr);
  // In the host's memory until the devices get it.
  PjrtBuffer(const Type& type, std::unique_ptr<HostMemory> host, MemoryCounts& counts);
  ~PjrtBuffer() override;
  void* host_pointer() const override {
    return nullptr;
  }
  bool sole_owner() const override {
    return true;
  }
  bool is_placed() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return host_ == nullptr;
  }
  // By device. The value of one device, or of the host, is copied to the first `num_devices`, whole.
  const Tiles& tiles(const Client& client, int num_devices);
  // The same value in tiles, from the host's memory; null if the devices have it.
  EngineBufferRef place(const Client& client, ShardingRef sharding) const;
  // Row-major.
  void download(const Client& client, void* data) const;

 private:
  void count_tiles(int64_t sign) const;

  MemoryCounts& counts_;
  mutable std::mutex mutex_; // guards all below
  std::unique_ptr<HostMemory> host_; // null once the devices have the value
  Tiles tiles_;
};

} // namespace torch_xla::pjrt
