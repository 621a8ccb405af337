// Copies between devices and the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <string_view>
#include <vector>

#include "trace/cell.h"

namespace torch_xla {

// Whether the shown elements differ from the stored ones: a conjugation or negation is pending. False for an undefined tensor.
bool has_bits(const at::Tensor& t);
// The tensors with pending bits resolved; those without such bits are returned as they are. Not under the recording lock.
std::vector<at::Tensor> without_bits(std::vector<at::Tensor> tensors);

// A tensor on the device with the CPU tensor's elements, dtype and strides. Shares the memory if the tensor is dense and the only owner of
// its storage: the caller must no longer write into it.
at::Tensor upload_adopted(int device, const at::Tensor& cpu);
// Copies the CPU tensor's elements into the device tensor: converted, broadcast. The CPU memory may change after the return.
void write_from_cpu(const at::Tensor& destination, const at::Tensor& cpu);
// A read-only CPU tensor of the device tensor's elements, without a copy if the memory allows it; valid while it lives. `use` is the
// purpose for observers: "copy", "item" (a number), "bool" (a truth value); empty for others, such as fallbacks.
at::Tensor read_on_cpu(const at::Tensor& tensor, std::string_view use = {});
// The device tensor's only element. `use` as read_on_cpu()'s.
at::Scalar read_number(const at::Tensor& tensor, std::string_view use);
// Copies the device tensor's elements into the CPU tensor: converted, of the same sizes.
void download(const at::Tensor& destination, const at::Tensor& source);
// Records a copy of the source's shown elements into the destination, both on one device: converted, broadcast.
void record_copy(const at::Tensor& destination, const at::Tensor& source);
// Runs the nodes of the tensor's value and waits for it. Throws the error of that run. Does nothing while the recording must stay one
// program: in a capture, which notes it (Capture::is_told_at_call), and if its recorder records_one_program.
void wait_for_value(const at::Tensor& tensor);
// Replaces the cell's content, a buffer, by the same bytes as `type`, for dtypes without rows: waits. The caller holds the recording lock
// of the cell's device.
void reinterpret_buffer_locked(Cell& cell, const Type& type);

// Address of the elements of the tensor's storage, after running pending work; valid until the tensor is written. Throws UserError (Value)
// for uninitialized memory, (NotImplemented) for memory that the host cannot read.
uintptr_t storage_address(const at::Tensor& tensor);

} // namespace torch_xla
