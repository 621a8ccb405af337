// The device as PyTorch sees it: registration of hooks, guard, allocators, and what they share.
#include "device/device.h"

#include <c10/core/DeviceType.h>

#include "core/process.h"
#include "engine/engine.h"
#include "kernels/register.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

thread_local c10::DeviceIndex tls_device = 0;

} // namespace

void register_device() {
  c10::register_privateuse1_backend("xla");
  register_guard();
  register_allocators();
  register_autocast();
  register_profiler();
  register_activity_profiler();
  register_graphs();
  register_kernels();
  register_hooks(); // last: it makes the device PyTorch's accelerator, which must not happen after an error
}

c10::DeviceIndex current_device() noexcept {
  return tls_device;
}

void set_current_device(c10::DeviceIndex index) {
  check_device(index);
  set_current_device_unchecked(index);
}

void set_current_device_unchecked(c10::DeviceIndex index) noexcept {
  tls_device = index;
}

c10::DeviceIndex existing_device(c10::DeviceIndex index) {
  if (index == -1 || index == current_device()) { // without opening a plugin for the answer
    return current_device();
  }
  with_torch_errors([index] { check_device(index); });
  return index;
}

bool in_bad_fork() {
  return process::in_forked_child();
}

} // namespace torch_xla
