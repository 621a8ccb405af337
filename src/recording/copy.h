// Copies between devices and the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <string_view>
#include <vector>

#include "trace/cell.h"

namespace torch_xla {

// Whether the tensor shows something else than it stores: a conjugation or negation is pending. False for an undefined tensor.
bool has_bits(const at::Tensor& t);
// What the tensors show, stored as it is shown; those without such bits are themselves. Not under the recording lock.
std::vector<at::Tensor> without_bits(std::vector<at::Tensor> tensors);

// A tensor on the device with the CPU tensor's elements, dtype and strides. The memory is shared where the tensor is dense and owns its
// storage alone: the caller must not write into it any more.
at::Tensor upload_adopted(int device, const at::Tensor& cpu);
// Copies the CPU tensor's elements into the device tensor: converted, broadcast. The CPU memory may change after the return.
void write_from_cpu(const at::Tensor& destination, const at::Tensor& cpu);
// A CPU tensor that shows the device tensor's elements without a copy where the memory allows it: read only, valid as long as it lives.
// `use` is what observers are told that it is for: "copy", "item" (a number), "bool" (a truth value); empty for others, as fallbacks.
at::Tensor read_on_cpu(const at::Tensor& tensor, std::string_view use = {});
// Copies the device tensor's elements into the CPU tensor: converted, of the same sizes.
void download(const at::Tensor& destination, const at::Tensor& source);
// Records the copy of what the source shows into the destination, both of one device: converted, broadcast.
void record_copy(const at::Tensor& destination, const at::Tensor& source);
// Runs what the tensor's value takes and waits for it. Throws the error of that run. Nothing happens while what is recorded must stay
// together: within a capture, which notes it (Capture::is_told_at_call), and where its recorder records_one_program.
void wait_for_value(const at::Tensor& tensor);
// Replaces the content of the cell, a buffer, by the same bytes seen as `type`, for dtypes without rows: waits. The caller holds the
// recording lock of the cell's device.
void reinterpret_buffer_locked(Cell& cell, const Type& type);

// Where the elements of the tensor's storage lie, after what is pending has run: until the tensor is written. Throws UserError (Value) for
// memory that nobody has written, (NotImplemented) for memory that the host cannot read.
uintptr_t storage_address(const at::Tensor& tensor);

} // namespace torch_xla
