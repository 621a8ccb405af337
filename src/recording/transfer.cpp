// Conversion to the stored types and back, around the engine's transfers.
#include "recording/transfer.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <utility>

#include "core/env.h"
#include "core/hash.h"
#include "core/observer.h"
#include "engine/engine.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

at::Tensor stored_form(const at::Tensor& dense) {
  const c10::ScalarType stored = to_scalar_type(stored_type(to_dtype(dense.scalar_type()), env::float_storage()));
  return stored == dense.scalar_type() ? dense : dense.to(stored);
}

Type type_of(const at::Tensor& t) {
  return {to_dtype(t.scalar_type()), to_dims(t.sizes())};
}

} // namespace

Dims engine_strides(const at::Tensor& dense) {
  return dense.is_contiguous() ? Dims() : to_dims(dense.strides());
}

BufferRef upload_dense(int device, const at::Tensor& dense) {
  observer::Span span(observer::Phase::kUpload, device, {}, observed_location(observer::Phase::kUpload));
  TORCH_CHECK(
      item_size(to_dtype(dense.scalar_type())) == static_cast<size_t>(dense.element_size()),
      "the XLA device cannot hold elements of type ",
      dense.scalar_type());
  at::Tensor stored = stored_form(dense);
  EngineBufferRef payload = engine().upload(device, type_of(stored), engine_strides(stored), stored.const_data_ptr());
  span.set_bytes(num_bytes(dense));
  span.set_content(hash_sample(dense.const_data_ptr(), dense.nbytes()));
  return std::make_shared<Buffer>(std::move(payload), to_dtype(dense.scalar_type()));
}

BufferRef uninitialized_buffer(int device, DType dtype, const Dims& dims) {
  EngineBufferRef payload = engine().uninitialized(device, {stored_type(dtype, env::float_storage()), dims});
  return payload ? std::make_shared<Buffer>(std::move(payload), dtype) : nullptr;
}

BufferRef adopt_dense(int device, const at::Tensor& dense) {
  at::Tensor stored = stored_form(dense);
  EngineBufferRef payload = engine().adopt(device, type_of(stored), engine_strides(stored), stored.mutable_data_ptr(), [stored] {});
  return std::make_shared<Buffer>(std::move(payload), to_dtype(dense.scalar_type()));
}

at::Tensor payload_on_cpu(BufferReader buffer, const EngineBufferRef& payload, c10::ScalarType dtype) {
  const Type& type = payload->type();
  auto options = at::TensorOptions().dtype(to_scalar_type(type.dtype)).device(at::kCPU);
  if (void* data = payload->host_pointer()) {
    auto keep = std::make_shared<std::pair<BufferReader, EngineBufferRef>>(std::move(buffer), payload);
    return at::for_blob(data, to_ref(type.dims))
        .strides(to_ref(payload->strides()))
        .deleter([keep = std::move(keep)](void*) {})
        .options(options)
        .make_tensor()
        .to(dtype);
  }
  at::Tensor copy = at::empty_strided(to_ref(type.dims), to_ref(payload->strides()), options);
  engine().download(*payload, copy.mutable_data_ptr());
  return copy.to(dtype);
}

at::Scalar number_at(const void* data, c10::ScalarType type) {
  at::Scalar number;
  AT_DISPATCH_V2(
      type,
      "_local_scalar_dense",
      AT_WRAP([&] { number = *static_cast<const scalar_t*>(data); }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
      AT_EXPAND(AT_FLOAT8_TYPES),
      at::kComplexHalf,
      at::kHalf,
      at::kBFloat16,
      at::kBool);
  return number;
}

} // namespace torch_xla
