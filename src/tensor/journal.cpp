// Entries of storages, and what became of them.
#include "tensor/journal.h"

#include <ATen/EmptyTensor.h>

#include "core/errors.h"
#include "tensor/recorder.h"

namespace torch_xla {
namespace {

at::Tensor whole_tensor(c10::Storage storage, const Cell& cell) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(to_scalar_type(cell.dtype)));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(to_ref(cell.dims), to_ref(cell.strides));
  return tensor;
}

} // namespace

CellJournal::Entry& CellJournal::entry(Cell& cell) {
  auto found = index_.find(&cell);
  XLA_ASSERT(found != index_.end(), "a storage that the captured step uses was not noted");
  return entries_[found->second];
}

void CellJournal::note(const at::Tensor& tensor, Cell& cell) {
  auto found = index_.find(&cell);
  if (found != index_.end() && !entries_[found->second].storage.expired()) {
    return;
  }
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  Content before{nullptr, cell.previous, cell.dtype, cell.dims, cell.strides, cell.nbytes};
  Entry entry{storage.getWeakStorageImpl(), {}, &cell, std::move(before), nullptr};
  if (!is_new(cell) && cell.value) {
    entry.before.buffer = cell.value->buffer();
    entry.held = storage;
  }
  index_[&cell] = entries_.size();
  entries_.push_back(std::move(entry));
}

void CellJournal::note_parameter(const at::Tensor& tensor, Cell& cell, ValueId parameter) {
  note(tensor, cell);
  Entry& own = entry(cell);
  own.buffer = cell.value->buffer();
  own.parameter = parameter;
}

ValueId CellJournal::parameter(Cell& cell, Trace& trace) {
  Entry& own = entry(cell);
  const BufferRef& buffer = cell.value->buffer();
  if (own.buffer != buffer) {
    buffer->trace_generation = 0; // whatever other storages hold it
    own.parameter = trace.add_parameter(buffer);
    own.buffer = buffer;
    at::Tensor whole = is_new(cell) ? wrap_buffer(buffer) : whole_tensor(c10::Storage(own.storage.lock()), cell);
    inputs_.push_back({std::move(whole), own.parameter, is_new(cell)});
  }
  return own.parameter;
}

void CellJournal::share(Cell& to, Cell& from, Trace& trace) {
  if (from.value->buffer()) {
    parameter(from, trace);
    Entry& target = entry(to);
    target.buffer = entry(from).buffer;
    target.parameter = entry(from).parameter;
  }
}

std::vector<CellJournal::Output> CellJournal::outputs() const {
  std::vector<Output> outputs;
  for (const Entry& entry : entries_) {
    auto storage = entry.storage.lock();
    if (!storage || !entry.cell->value) {
      continue;
    }
    const Cell& cell = *entry.cell;
    const BufferRef& buffer = cell.value->buffer();
    bool is_passed_on = buffer && buffer == entry.buffer && buffer != entry.before.buffer;
    if (!buffer || is_passed_on) {
      outputs.push_back({whole_tensor(c10::Storage(std::move(storage)), cell), buffer ? entry.parameter : cell.value->id()});
    }
  }
  return outputs;
}

void CellJournal::restore() {
  for (Entry& entry : entries_) {
    auto storage = entry.storage.lock();
    if (!storage) {
      continue;
    }
    Cell& cell = *entry.cell;
    if (is_new(cell)) {
      if (cell.value && !cell.value->buffer()) {
        cell.set_value(nullptr);
      }
      continue;
    }
    cell.set_value(entry.before.buffer ? LazyValue::ready(entry.before.buffer) : nullptr);
    cell.previous = entry.before.previous;
    cell.dtype = entry.before.dtype;
    cell.dims = entry.before.dims;
    cell.strides = entry.before.strides;
    cell.nbytes = entry.before.nbytes;
  }
}

} // namespace torch_xla
