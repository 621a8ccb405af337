// Device arguments, and the error for tensors of several devices.
#include "trace/device_number.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/errors.h"
#include "engine/engine.h"
#include "trace/torch_errors.h"

namespace torch_xla {

int resolve_device(std::optional<c10::Device> device) {
  if (!device || !device->has_index()) {
    return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getDevice().index();
  }
  with_torch_errors([&device] { check_device(device->index()); });
  return device->index();
}

void refuse_device(int device, const at::Tensor& other) {
  throw UserError(
      ErrorKind::Runtime,
      str("Expected all tensors to be on the same device, but found at least two devices, xla:",
          device,
          " and ",
          other.device().str(),
          "! (move the tensor or its module with .to('xla",
          other.device().type() == c10::DeviceType::PrivateUse1 ? str(":", device) : "",
          "'))"));
}

} // namespace torch_xla
