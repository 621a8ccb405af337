// Copies between devices and the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_xla {

// A tensor on the device with the CPU tensor's elements, dtype and strides. The memory is shared where the tensor is dense and owns its
// storage alone: the caller must not write into it any more.
at::Tensor upload_adopted(int device, at::Tensor cpu);
// Copies the CPU tensor's elements into the device tensor: converted, broadcast. The CPU memory may change after the return.
void write_from_cpu(const at::Tensor& destination, const at::Tensor& cpu);

} // namespace torch_xla
