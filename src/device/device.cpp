// The device as PyTorch sees it: registration of hooks, guard, allocators, and what they share.
#include "device/device.h"

#include <c10/core/DeviceType.h>

#include <mutex>

#include "core/errors.h"
#include "core/process.h"
#include "tensor/api.h"

namespace torch_xla {
namespace {

constexpr c10::DeviceIndex kDeviceCount = 1;
thread_local c10::DeviceIndex tls_device = 0;

} // namespace

void register_device() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::register_privateuse1_backend("xla");
    register_hooks();
    register_guard();
    register_allocators();
    register_profiler();
    register_tensor_kernels();
  });
}

c10::DeviceIndex device_count() noexcept {
  return kDeviceCount;
}

c10::DeviceIndex current_device() noexcept {
  return tls_device;
}

void set_current_device(c10::DeviceIndex index) {
  XLA_CHECK(
      index >= 0 && index < kDeviceCount, "device index ", int{index}, " does not exist: there are ", int{kDeviceCount}, " xla devices");
  tls_device = index;
}

bool in_bad_fork() {
  return process::in_forked_child();
}

} // namespace torch_xla
