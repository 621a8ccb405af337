// Reading and writing cells.
#include "recording/recording.h"

#include <ATen/EmptyTensor.h>

#include "core/errors.h"
#include "engine/engine.h"
#include "ir/strides.h"
#include "ops/registry.h"
#include "program/sync.h"
#include "recording/capture.h"
#include "recording/copy.h"
#include "recording/sharding.h"
#include "recording/transfer.h"
#include "trace/source_line.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

bool same_geometry(const at::Tensor& t, const Cell& cell) {
  return t.storage_offset() == 0 && to_dtype(t.scalar_type()) == cell.dtype && same_dims(t.sizes(), to_ref(cell.dims)) &&
      same_dims(t.strides(), to_ref(cell.strides));
}

// Makes the cell's content that of a tensor that fills the storage.
void set_geometry(Cell& cell, const at::Tensor& t) {
  cell.dtype = to_dtype(t.scalar_type());
  cell.dims = to_dims(t.sizes());
  cell.strides = to_dims(t.strides());
}

Cell& device_cell(const at::Tensor& t) {
  Cell* cell = find_cell(t);
  XLA_CHECK(cell, kNoCell);
  if (cell->previous) {
    take_back_when_told(*cell);
  }
  return *cell;
}

} // namespace

static RecordingLock lock_after_cut(Recorder& recorder, int device) {
  if (recorder.wants_cut(device)) {
    cut_long_trace(recorder, device);
  }
  return lock_recorder(device);
}

Recording::Recording(int device)
    : device_(device),
      recorder_(Recorder::current()),
      lock_(lock_after_cut(recorder_, device)),
      capture_(recorder_.capture(device)),
      trace_(recorder_.trace(device)),
      location_(current_location()) {}

[[noreturn]] static void throw_error_of(Buffer& buffer) {
  try {
    buffer.wait_uninterrupted();
  } catch (const UserError& error) {
    throw_as_torch_error(error);
  }
  XLA_ASSERT(false, "a failed buffer has no error");
}

Cell& Recording::get_cell(const at::Tensor& t) const {
  if (t.device() != c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device_))) {
    refuse_device(device_, t);
  }
  Cell& cell = device_cell(t);
  if (capture_) [[unlikely]] {
    return capture_->content_of(t.unsafeGetTensorImpl()->unsafe_storage(), cell);
  }
  if (cell.value && cell.value->trace() && cell.value->trace() != &trace_) [[unlikely]] {
    run_other_trace(cell);
  }
  return cell;
}

static void check_made_within(const Cell& cell, const Capture* capture) {
  TORCH_CHECK(
      !capture || capture->is_made_within(cell),
      "an in-place operation in the body of a loop on a tensor from outside of it, which would be written once and not in each turn; "
      "return the new value instead");
}

void Recording::check_writable(const Cell& cell) const {
  if (capture_ && !capture_->is_step()) {
    check_made_within(cell, capture_);
  }
}

void Recording::set_blank_geometry(Cell& cell, const at::Tensor& t) {
  set_geometry(cell, t);
  if (t.suggest_memory_format() == c10::MemoryFormat::Contiguous) { // images in channels-last order are themselves
    Dims order = memory_order(cell.dims, cell.strides);
    Dims dims;
    for (int64_t d : order) {
      dims.push_back(cell.dims[static_cast<size_t>(d)]);
    }
    cell.dims = dims;
    cell.strides = contiguous_strides(dims);
  }
}

// Gives a cell without a value the engine's memory that nobody has written to, if it has such memory.
bool Recording::find_uninitialized(Cell& cell) const {
  BufferRef buffer = uninitialized_buffer(device_, cell.dtype, cell.dims);
  if (!buffer) {
    return false;
  }
  cell.set_value(LazyValue::ready(std::move(buffer)));
  return true;
}

ValueId Recording::content(Cell& cell) {
  if (!cell.value) {
    TORCH_CHECK(
        !capture_ || !capture_->is_step() || capture_->is_made_within(cell),
        "the captured step reads a tensor of shape ",
        to_ref(cell.dims),
        " that nothing has been written to: write it before the capture");
    if (!find_uninitialized(cell)) {
      set_content(cell, zeros(cell.dtype, cell.dims));
    }
  }
  const BufferRef& buffer = cell.value->buffer();
  // The sync of this trace reports an error that no user has got, and drops the whole trace.
  if (buffer && buffer->state() == Buffer::State::kFailed && !buffer->has_news()) {
    throw_error_of(*buffer);
  }
  if (cell.value->trace() == &trace_) {
    return cell.value->id();
  }
  return capture_ ? capture_->add_input(cell) : trace_.add_parameter(buffer);
}

ValueId Recording::flat_content(Cell& cell) {
  ValueId v = content(cell);
  if (cell.strides == Dims{1}) {
    return v;
  }
  Type flat{cell.dtype, {static_cast<int64_t>(cell.nbytes / item_size(cell.dtype))}};
  return node(kViewOp, {v}, {cell.strides, Dims{1}, int64_t{0}}, flat);
}

void Recording::set_content(Cell& cell, ValueId v) {
  keep_previous(cell);
  cell.set_value(trace_.lazy(v));
}

void Recording::note_order(ValueId v, const Dims& dims, const Dims& strides) {
  const Dims row_major = contiguous_strides(dims);
  if (strides != row_major && !same_strides(dims, strides, row_major) && num_elements(dims) > 0 && is_dense(dims, strides)) {
    trace_.note_order(v, strides);
  }
}

void Recording::keep_previous(Cell& cell) {
  if (capture_) {
    return; // nothing of it fails here
  }
  if (cell.value && !cell.value->buffer()) {
    if (!cell.previous) {
      cell.previous = std::make_shared<Previous>(); // of a tensor that was empty before this trace
    }
    trace_.overwritten().push_back({cell.previous, cell.value->id(), cell.dtype, cell.dims, cell.strides});
    return;
  }
  if (PreviousRef previous = torch_xla::keep_previous(cell)) {
    trace_.replaced().push_back(std::move(previous));
  }
}

// Makes the cell a base for a view like the tensor. Bytes seen as bools stay bytes: as bools they would lose bits.
void Recording::ensure_base(Cell& cell, const at::Tensor& t) {
  check_bounds(t, cell.nbytes);
  DType dtype = to_dtype(t.scalar_type());
  bool shows_bytes = dtype == DType::Bool && cell.value && cell.dtype != DType::Bool && is_recordable(cell.dtype);
  ensure_dtype(cell, shows_bytes ? DType::U8 : dtype);
}

// Gives an uninitialized storage, or one with a content of another type, a flat geometry of the wanted type.
void Recording::ensure_dtype(Cell& cell, DType dtype) {
  if (cell.value && cell.dtype == dtype) {
    return;
  }
  XLA_CHECK(item_size(dtype) > 0, "the XLA device cannot hold elements of this type");
  if (size_t rest = cell.nbytes % item_size(dtype)) {
    resize(cell, cell.nbytes + item_size(dtype) - rest);
  }
  Dims flat{static_cast<int64_t>(cell.nbytes / item_size(dtype))};
  if (cell.value) {
    reinterpret(cell, {dtype, flat});
  }
  cell.dtype = dtype;
  cell.dims = flat;
  cell.strides = {1};
}

// Records the cell's bytes seen as `type`. No sync: operands that were read before stay valid.
void Recording::reinterpret(Cell& cell, const Type& result) {
  static const Op& op = get_op("aten::view_copy.dtype");
  if (!is_recordable(cell.dtype) || !is_recordable(result.dtype)) {
    reinterpret_buffer_locked(cell, result);
    return;
  }
  set_content(cell, node(op, {flat_content(cell)}, {static_cast<int64_t>(result.dtype)}, result));
}

ValueId Recording::read(const at::Tensor& t) {
  Cell& cell = get_cell(t);
  if (t.numel() == 0) {
    return zeros(to_dtype(t.scalar_type()), to_dims(t.sizes()));
  }
  if (!cell.value && fills_storage(t, cell.nbytes)) {
    set_blank_geometry(cell, t);
    content(cell);
  }
  if (cell.value && same_geometry(t, cell)) {
    return content(cell);
  }
  ensure_base(cell, t);
  ValueId base = content(cell);
  ValueId v = node(kViewOp, {base}, {cell.strides, to_dims(t.strides()), t.storage_offset()}, Type{cell.dtype, to_dims(t.sizes())});
  return convert(v, to_dtype(t.scalar_type()));
}

ValueId Recording::one_of_each(const at::Tensor& t, ValueId v) {
  Dims dims = to_dims(t.sizes());
  for (int64_t d = 0; d < t.dim(); ++d) {
    dims[static_cast<size_t>(d)] = t.stride(d) == 0 ? 1 : t.size(d); // one of the elements that share a place
  }
  if (dims == type(v).dims) {
    return v;
  }
  Dims strides = contiguous_strides(type(v).dims);
  return node(kViewOp, {v}, {strides, strides, int64_t{0}}, Type{type(v).dtype, dims});
}

void Recording::write(const at::Tensor& t, ValueId v) {
  Cell& cell = get_cell(t);
  if (t.numel() == 0) {
    return;
  }
  check_writable(cell);
  if (fills_storage(t, cell.nbytes)) {
    v = cell.mark ? as_marked(cell, to_dims(t.sizes()), to_dims(t.strides()), v) : v;
    set_content(cell, v);
    set_geometry(cell, t);
    note_order(v, cell.dims, cell.strides);
    return;
  }
  ensure_base(cell, t);
  v = one_of_each(t, convert(v, cell.dtype));
  ValueId base = content(cell);
  Type result = type(base);
  v = node(kViewUpdateOp, {base, v}, {cell.strides, to_dims(t.strides()), t.storage_offset()}, result);
  v = as_marked(cell, cell.dims, cell.strides, v);
  set_content(cell, v);
  note_order(v, cell.dims, cell.strides);
}

void Recording::write_converted(const at::Tensor& t, ValueId v) {
  write(t, broadcast(convert(v, to_dtype(t.scalar_type())), to_dims(t.sizes())));
}

bool Recording::share(const at::Tensor& destination, const at::Tensor& source) {
  Cell& from = get_cell(source);
  Cell& to = get_cell(destination);
  if (!from.value || destination.sizes() != source.sizes() || destination.scalar_type() != source.scalar_type() ||
      !fills_storage(destination, to.nbytes) || to.mark) {
    return false;
  }
  // Shares all bytes of a storage as another one's, for any content.
  bool bytes =
      from.dtype != to_dtype(source.scalar_type()) && destination.strides() == source.strides() && fills_storage(source, from.nbytes);
  if (!bytes && !same_geometry(source, from)) {
    return false;
  }
  check_writable(to);
  Dims strides = bytes ? from.strides : to_dims(destination.strides());
  if (engine().orders_outputs() && !same_strides(from.dims, strides, from.strides)) { // a copy in another order
    ValueId v = content(from);
    write(destination, node(kViewOp, {v}, {from.strides, from.strides, int64_t{0}}, Type(type(v)))); // appending moves the graph's own
    return true;
  }
  if (capture_) {
    content(from); // from here on the capture's
  }
  if (from.value->buffer()) {
    to.previous = from.previous; // from the run of the same value
  } else {
    keep_previous(to);
  }
  from.value->ref();
  to.set_value(from.value);
  to.dtype = from.dtype;
  to.dims = from.dims;
  to.strides = std::move(strides);
  return true;
}

void Recording::run_if_eager() noexcept {
  if (recorder_.is_lazy() || capture_ || trace_.empty()) {
    return;
  }
  try {
    sync_locked(trace_, SyncCause::kEager);
  } catch (...) { // after an interrupt the trace stays pending; after any other error its values have failed
  }
}

void write_buffer(const at::Tensor& tensor, BufferRef buffer) {
  auto lock = lock_recorder(device_number(tensor));
  Cell& cell = device_cell(tensor);
  check_made_within(cell, Recorder::current().capture(cell.device));
  cell.nbytes = tensor.storage().nbytes(); // without the bytes added by views of wider types
  XLA_ASSERT(fills_storage(tensor, cell.nbytes));
  cell.set_value(LazyValue::ready(std::move(buffer)));
  cell.previous = nullptr;
  set_geometry(cell, tensor);
  place_as_marked(cell);
}

} // namespace torch_xla
