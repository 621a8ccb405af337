// Allocators: device memory as storage cells that cost nothing until they hold a value, and host memory for pin_memory().
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "core/errors.h"
#include "device/device.h"
#include "engine/engine.h"
#include "trace/cell.h"

namespace torch_xla {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

void fill(c10::CachingAllocator::StatArray& stats, int64_t current, int64_t peak) {
  auto& all = stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  all.current = current;
  all.peak = peak;
}

EngineMemoryInfo memory_info(c10::DeviceIndex index) {
  return engine().memory_info(existing_device(index));
}

struct XlaAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    return allocate_cell(nbytes, current_device());
  }
  // Cells need their own context, so there is no raw_alloc().
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }
  void copy_data(void* /*dest*/, const void* /*src*/, std::size_t /*count*/) const override {
    XLA_CHECK_KIND(NotImplemented, false, "the memory of an xla tensor has no address; copy the tensor instead");
  }
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    empty_caches();
  }
  void recordStream(const c10::DataPtr& /*ptr*/, c10::Stream /*stream*/) override {} // all streams run in one order
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const EngineMemoryInfo info = memory_info(device);
    DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      fill(*bytes, info.bytes_used, info.peak_bytes_used);
    }
    fill(stats.reserved_bytes, std::max(info.bytes_reserved, info.bytes_used), std::max(info.peak_bytes_reserved, info.peak_bytes_used));
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    existing_device(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    engine().reset_peak_memory(existing_device(device));
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const EngineMemoryInfo info = memory_info(device);
    const int64_t free = info.bytes_limit > info.bytes_used ? info.bytes_limit - info.bytes_used : 0;
    return {static_cast<size_t>(free), static_cast<size_t>(info.bytes_limit)};
  }
};

// The live blocks of pin_memory(), for is_pinned(). Any thread.
class PinnedBlocks {
 public:
  static PinnedBlocks& get() {
    static auto* blocks = new PinnedBlocks; // tensors may outlive static destruction
    return *blocks;
  }
  void add(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_.insert(data);
  }
  void remove(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_.erase(data);
  }
  bool contains(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    return blocks_.count(data) != 0;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<const void*> blocks_; // guarded by mutex_
};

void free_pinned(void* data) {
  PinnedBlocks::get().remove(data);
  c10::GetCPUAllocator()->raw_deallocate(data);
}

// The device reads all host memory, so pinned memory is plain memory with an entry in PinnedBlocks.
struct XlaHostAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    void* data = c10::GetCPUAllocator()->raw_allocate(nbytes);
    PinnedBlocks::get().add(data);
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &free_pinned;
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }
  bool record_event(void* /*ptr*/, void* /*ctx*/, c10::Stream /*stream*/) override {
    return true;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    return {};
  }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

} // namespace

void empty_caches() {
  for (int device = 0; device < num_devices(); ++device) {
    engine().empty_cache(device);
  }
}

bool is_pinned(const void* data) {
  return data != nullptr && PinnedBlocks::get().contains(data);
}

void register_allocators() {
  // Both live as long as the process: PyTorch keeps the pointers.
  c10::SetAllocator(kXlaType, new XlaAllocator());
  at::setHostAllocator(kXlaType, new XlaHostAllocator());
}

} // namespace torch_xla
