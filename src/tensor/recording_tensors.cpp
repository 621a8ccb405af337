// New tensors over values of the trace and over buffers.
#include <ATen/EmptyTensor.h>

#include "tensor/journal.h"
#include "tensor/recorder.h"

namespace torch_xla {
namespace {

c10::intrusive_ptr<c10::StorageImpl> make_storage(size_t nbytes, int device, Cell** cell) {
  c10::DataPtr data = make_cell(nbytes, device, cell);
  static c10::Allocator* const allocator = c10::GetAllocator(c10::DeviceType::PrivateUse1);
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, std::move(data), allocator, /*resizable=*/true);
}

// A tensor whose cell has no value yet.
at::Tensor make_tensor(const Type& type, const Dims& strides, int device, Cell*& cell) {
  auto storage = make_storage(static_cast<size_t>(type.nbytes()), device, &cell);
  cell->dtype = type.dtype;
  cell->dims = type.dims;
  cell->strides = strides.empty() && !type.dims.empty() ? contiguous_strides(type.dims) : strides;
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(to_scalar_type(type.dtype)));
  if (strides.empty()) {
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(to_ref(type.dims));
  } else {
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(to_ref(type.dims), to_ref(strides));
  }
  return tensor;
}

} // namespace

at::Tensor Recording::wrap(ValueId v, const Dims& strides) {
  Cell* cell = nullptr;
  at::Tensor tensor = make_tensor(type(v), strides, device_, cell);
  cell->capture = state_.capture.load(std::memory_order_relaxed);
  const Value& value = trace_.graph().values[v];
  cell->set_value(value.kind == ValueKind::kParameter ? LazyValue::ready(trace_.inputs()[value.index]) : trace_.lazy(v));
  if (!strides.empty() && value.kind != ValueKind::kParameter) {
    note_order(v, cell->dims, cell->strides);
  }
  if (state_.journal) {
    note_wrapped(tensor, *cell, v);
  }
  return tensor;
}

void Recording::note_wrapped(const at::Tensor& tensor, Cell& cell, ValueId v) {
  if (trace_.graph().values[v].kind == ValueKind::kParameter) {
    state_.journal->note_parameter(tensor, cell, v);
  } else {
    state_.journal->note(tensor, cell);
  }
}

at::Tensor wrap_buffer(BufferRef buffer, const Dims& strides) {
  Cell* cell = nullptr;
  at::Tensor tensor = make_tensor(buffer->type(), strides, buffer->get()->device(), cell);
  cell->capture = recorder(cell->device).capture.load(std::memory_order_relaxed);
  cell->set_value(LazyValue::ready(std::move(buffer)));
  return tensor;
}

} // namespace torch_xla
