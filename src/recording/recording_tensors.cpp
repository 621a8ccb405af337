// Tensors and storages of the device: new ones over values and buffers, values of other threads, sizes, dtypes.
#include <ATen/EmptyTensor.h>

#include "core/errors.h"
#include "engine/engine.h"
#include "program/sync.h"
#include "recording/capture.h"
#include "runtime/interrupt.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

c10::intrusive_ptr<c10::StorageImpl> make_storage(size_t nbytes, int device, Cell** cell) {
  c10::DataPtr data = make_cell(nbytes, device, cell);
  static c10::Allocator* const allocator = c10::GetAllocator(c10::DeviceType::PrivateUse1);
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, std::move(data), allocator, /*resizable=*/true);
}

// A tensor with an empty cell.
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

LazyValue* Recording::hold(ValueId v) {
  const bool is_buffer = !capture_ && trace_.graph().values[v].kind == ValueKind::kParameter;
  return is_buffer ? LazyValue::ready(trace_.buffer_of(v)) : trace_.lazy(v);
}

at::Tensor Recording::wrap(ValueId v, const Dims& strides) {
  Cell* cell = nullptr;
  at::Tensor tensor = make_tensor(type(v), strides, device_, cell);
  cell->set_value(hold(v));
  if (!strides.empty() && cell->value->trace()) {
    note_order(v, cell->dims, cell->strides);
  }
  if (capture_) [[unlikely]] {
    cell->capture = capture_->number();
    capture_->content_of(tensor.storage(), *cell);
  }
  return tensor;
}

void Recording::give(const c10::Storage& storage, Cell& cell, ValueId v) {
  cell.set_value(hold(v));
  note_order(v, cell.dims, cell.strides);
  if (capture_) {
    capture_->content_of(storage, cell);
  }
}

at::Tensor wrap_value(LazyValue& value, const Type& type, int device) {
  Cell* cell = nullptr;
  at::Tensor tensor = make_tensor(type, {}, device, cell);
  value.ref();
  cell->set_value(&value);
  return tensor;
}

at::Tensor wrap_buffer(BufferRef buffer, const Dims& strides) {
  Cell* cell = nullptr;
  at::Tensor tensor = make_tensor(buffer->type(), strides, buffer->get()->device(), cell);
  cell->capture = Recorder::current_capture(cell->device);
  cell->set_value(LazyValue::ready(std::move(buffer)));
  return tensor;
}

// Repeats a compile ended by Ctrl-C if the user's own handler must run first: it may not run under the lock.
static void sync_other(Trace& trace) {
  try {
    const interrupt::Scope scope;
    sync_locked(trace, SyncCause::kRead);
  } catch (const interrupt::Interrupted&) {
    interrupt::raise_default();
    sync_locked(trace, SyncCause::kRead);
  }
}

void run_other_trace(const Cell& cell) {
  try {
    sync_other(*cell.value->trace());
  } catch (const UserError& error) {
    if (!cell.value->buffer()) {
      throw_as_torch_error(error);
    }
  }
}

void Recording::resize(const c10::Storage& storage, size_t nbytes) {
  Cell& cell = *find_cell(storage);
  if (!capture_) {
    if (cell.value && cell.value->trace() && cell.value->trace() != &trace_) {
      run_other_trace(cell);
    }
    resize(cell, nbytes);
    return;
  }
  Cell& content = capture_->content_of(storage, cell);
  check_writable(content);
  resize(content, nbytes);
}

void Recording::resize(Cell& cell, size_t nbytes) {
  size_t old = std::exchange(cell.nbytes, nbytes);
  if (!cell.value || old == nbytes) {
    return;
  }
  if (old == 0 || nbytes == 0) {
    cell.set_value(nullptr);
    cell.previous = nullptr;
    return;
  }
  cell.nbytes = old;
  ensure_dtype(cell, DType::U8);
  ValueId bytes = flat_content(cell);
  Type result{DType::U8, {static_cast<int64_t>(nbytes)}};
  Attrs flat{Dims{1}, Dims{1}, int64_t{0}};
  bytes = nbytes < old ? node(kViewOp, {bytes}, flat, result) : node(kViewUpdateOp, {zeros(DType::U8, result.dims), bytes}, flat, result);
  set_content(cell, bytes);
  cell.dims = result.dims;
  cell.strides = {1};
  cell.nbytes = nbytes;
  cell.previous = nullptr; // it does not fill the storage any more
}

void resize_storage_bytes(const c10::Storage& storage, size_t nbytes) {
  Cell* cell = find_cell(storage);
  TORCH_CHECK(cell, kNoCell);
  Recording recording(cell->device);
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  move_cell(impl->_mutable_data_ptr_no_checks(), nbytes);
  recording.resize(storage, nbytes);
  impl->set_nbytes(nbytes);
}

void check_bounds(const at::Tensor& t, size_t storage_nbytes) {
  size_t needed = at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.dtype().itemsize(), static_cast<size_t>(t.storage_offset()));
  TORCH_CHECK(
      needed <= storage_nbytes,
      "the tensor's sizes ",
      t.sizes(),
      ", strides ",
      t.strides(),
      " and storage offset ",
      t.storage_offset(),
      " need a storage of ",
      needed,
      " bytes, but it has ",
      storage_nbytes);
}

bool is_recordable(DType type) {
  return is_native(type) || (is_complex(type) && engine().runs_library_calls());
}

} // namespace torch_xla
