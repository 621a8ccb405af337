// The functions of the public header, with PyTorch's classes of errors.
#include "torch_xla/torch_xla.h"

#include "core/metrics.h"
#include "cpp/load.h"
#include "device/device.h"
#include "engine/engine.h"
#include "program/sync.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

template <typename Function>
auto call(Function function) {
  register_all();
  try {
    return function();
  } catch (const UserError& error) {
    throw_as_torch_error(error);
  }
}

} // namespace

c10::Device device(std::optional<int> index) {
  return call([index] {
    int found = index.value_or(current_device());
    check_device(found);
    return c10::Device(kXlaType, static_cast<c10::DeviceIndex>(found));
  });
}

int device_count() {
  return call([] { return num_devices(); });
}

void sync(bool wait) {
  call([wait] { mark_step(current_device(), wait); });
}

void wait_device_ops() {
  call([] {
    for (int index = 0; index < num_devices(); ++index) {
      wait_device_ops(index);
    }
  });
}

std::string metrics_report() {
  return metrics::report();
}

std::optional<int64_t> counter_value(const std::string& name) {
  int64_t value = 0;
  return metrics::find_counter(name, &value) ? std::make_optional(value) : std::nullopt;
}

} // namespace torch_xla
