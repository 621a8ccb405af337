// A c10 allocator that uses a pool on threads inside a PoolRedirect, and the previous allocator on all others. PyTorch reads its pointer to
// the allocator without a lock, so ours is set when the library is loaded, as PyTorch's own is, not when the device is first used.
#include "engine/cpu/library/aten_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <utility>

namespace torch_xla::cpu {
namespace {

thread_local Pool* redirected = nullptr;
thread_local void* placed = nullptr; // for a tensor of this size
thread_local size_t placed_bytes = 0;
c10::Allocator* before_us = nullptr;

void release_to_pool(void* data) {
  Pool::find(data)->release(data);
}

// c10 wants one deleter for everything that raw_allocate gave.
void release_any(void* data) {
  if (Pool* pool = Pool::find(data)) {
    pool->release(data);
  } else {
    before_us->raw_deleter()(data);
  }
}

class RedirectAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (!redirected) {
      return before_us->allocate(bytes);
    }
    if (placed && bytes == placed_bytes) {
      void* data = std::exchange(placed, nullptr);
      return {data, data, [](void*) {}, c10::Device(c10::DeviceType::CPU)};
    }
    void* data = bytes ? redirected->allocate(bytes) : nullptr;
    return {data, data, &release_to_pool, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return before_us->raw_deleter() ? &release_any : nullptr;
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }
};

bool install() {
  before_us = c10::GetCPUAllocator();
  c10::SetCPUAllocator(new RedirectAllocator); // of the lowest priority: a program's own allocator may still take its place
  return true;
}

[[maybe_unused]] const bool installed = install();

} // namespace

PoolRedirect::PoolRedirect(Pool* pool) : before_(redirected) {
  redirected = pool;
}

PoolRedirect::~PoolRedirect() {
  redirected = before_;
}

Placement::Placement(void* data, size_t bytes) {
  placed = data;
  placed_bytes = bytes;
}

Placement::~Placement() {
  placed = nullptr;
}

} // namespace torch_xla::cpu
