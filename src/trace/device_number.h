// The number of the device that a call works on.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace torch_xla {

// True for tensors of one of our devices.
inline bool is_xla_tensor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_privateuseone();
}
// The number of the tensor's XLA device.
inline int device_number(const at::Tensor& tensor) {
  return tensor.device().index();
}
// The number of the argument `device` of an ATen call; the thread's own device if it names none. Throws c10::Error for a device that does
// not exist.
int resolve_device(std::optional<c10::Device> device);
// Eager's error for a call on our device with a tensor of another one.
[[noreturn]] void refuse_device(int device, const at::Tensor& other);

} // namespace torch_xla
