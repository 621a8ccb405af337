// Elements between memory of the CPU and buffers of the device, which may store them in a narrower type: env::float_storage().
#pragma once

#include <ATen/core/Tensor.h>

#include "trace/cell.h"

namespace torch_xla {

// A buffer of the device with a copy of a dense CPU tensor's elements, in its memory order. Throws for a type that the device lacks.
BufferRef upload_dense(int device, const at::Tensor& dense);
// As upload_dense(), for memory that is no longer written: without a copy if the engine can read it and stores this type.
BufferRef adopt_dense(int device, const at::Tensor& dense);
// A row-major buffer that nobody has written to, or null where the engine has none (Engine::uninitialized()).
BufferRef uninitialized_buffer(int device, DType dtype, const Dims& dims);
// A dense tensor's memory order in the engines' form: empty if contiguous.
Dims engine_strides(const at::Tensor& dense);
// The buffer's elements as `dtype`, in its own memory order: its memory if the host can read it and it has this type, else a copy.
// `payload`: the buffer's.
at::Tensor payload_on_cpu(BufferReader buffer, const EngineBufferRef& payload, c10::ScalarType dtype);
// The element of this type at the address.
at::Scalar number_at(const void* data, c10::ScalarType type);
inline int64_t num_bytes(const at::Tensor& t) {
  return t.numel() * static_cast<int64_t>(t.element_size());
}

} // namespace torch_xla
