// A capture's contents for cells, its inputs and outputs.
#include "recording/capture.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <mutex>

#include "core/errors.h"
#include "engine/engine.h"

namespace torch_xla {
namespace {

std::atomic<uint32_t> last_number{0};

at::Tensor whole_tensor(c10::Storage storage, const Cell& cell) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(to_scalar_type(cell.dtype)));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(to_ref(cell.dims), to_ref(cell.strides));
  return tensor;
}

std::unique_ptr<Cell> copy_content(const Cell& cell) {
  auto copy = std::make_unique<Cell>();
  if (cell.value) {
    cell.value->ref();
    copy->value = cell.value;
  }
  copy->dtype = cell.dtype;
  copy->dims = cell.dims;
  copy->strides = cell.strides;
  copy->nbytes = cell.nbytes;
  copy->device = cell.device;
  copy->mark = cell.mark;
  return copy;
}

bool shows_all_of(const at::Tensor& whole, const Cell& cell) {
  return to_dtype(whole.scalar_type()) == cell.dtype && same_dims(whole.sizes(), to_ref(cell.dims)) &&
      same_dims(whole.strides(), to_ref(cell.strides));
}

int checked(int device) {
  check_device(device);
  return device;
}

} // namespace

Capture::Capture(int device, Trace::Kind kind) : recorder_(Recorder::current().shared_from_this()), trace_(checked(device), kind) {
  auto lock = lock_recorder(device);
  outer_ = recorder_->capture(device);
  number_ = ++last_number;
  numbers_ = {number_};
  recorder_->set_capture(device, this, &trace_, number_);
}

bool Capture::is_made_within(const Cell& cell) const {
  return cell.capture != 0 && std::find(numbers_.begin(), numbers_.end(), cell.capture) != numbers_.end();
}

// Computes a value that is pending in another thread; a value of an outer trace is an input as it is.
void Capture::settle(const Cell& cell) const {
  const Trace* pending = cell.value ? cell.value->trace() : nullptr;
  for (const Capture* outer = outer_; pending && outer; outer = outer->outer_) {
    pending = pending == &outer->trace_ ? nullptr : pending;
  }
  const bool is_around = !is_step() && pending == recorder_->find_own_trace(device());
  if (pending && pending != &trace_ && !is_around) {
    run_other_trace(cell);
  }
}

Capture::Entry& Capture::add_entry(const c10::Storage& storage, Cell& cell) {
  auto entry = std::make_unique<Entry>(Entry{storage.getWeakStorageImpl(), {}, &cell, nullptr});
  if (!is_made_within(cell)) {
    const Cell& around = outer_ ? outer_->shown(cell) : cell;
    settle(around);
    entry->held = storage;
    entry->content = copy_content(around);
    index_[entry->content.get()] = entry.get();
  }
  index_[&cell] = entry.get();
  entries_.push_back(std::move(entry));
  return *entries_.back();
}

Cell& Capture::content_of(const c10::Storage& storage, Cell& cell) {
  auto found = index_.find(&cell);
  const bool is_known = found != index_.end() && !found->second->storage.expired();
  Entry& entry = is_known ? *found->second : add_entry(storage, cell);
  return entry.content ? *entry.content : cell;
}

Cell& Capture::shown(Cell& cell) {
  auto found = index_.find(&cell);
  if (found != index_.end() && found->second->content) {
    return *found->second->content;
  }
  return outer_ && !is_made_within(cell) ? outer_->shown(cell) : cell;
}

ValueId Capture::add_input(Cell& cell) {
  Entry& entry = *index_.at(&cell);
  LazyValue& value = *cell.value;
  const BufferRef buffer = value.buffer();
  const bool is_value = !is_step() || !entry.content;
  const void* known = buffer ? static_cast<const void*>(buffer.get()) : &value;
  ValueId parameter = kNoValue;
  if (auto found = values_.find(known); is_value && found != values_.end()) {
    parameter = found->second;
  } else {
    const Type type = buffer ? buffer->type() : Type{cell.dtype, cell.dims};
    at::Tensor whole = is_value ? wrap_value(value, type, device()) : whole_tensor(c10::Storage(entry.storage.lock()), cell);
    parameter = trace_.add_input(buffer, type);
    inputs_.push_back({std::move(whole), parameter, is_value});
    if (is_value) {
      values_.emplace(known, parameter);
    }
  }
  if (entry.parameter == kNoValue) {
    entry.parameter = parameter;
  }
  cell.set_value(trace_.lazy(parameter));
  return parameter;
}

std::vector<Capture::Output> Capture::outputs() const {
  std::vector<Output> outputs;
  for (const auto& entry : entries_) {
    auto storage = entry->storage.lock();
    const Cell& cell = entry->content ? *entry->content : *entry->cell;
    if (!storage || !cell.value || cell.value->trace() != &trace_) {
      continue;
    }
    const ValueId value = cell.value->id();
    const bool is_read = entry->content && value == entry->parameter;
    if (is_read && shows_all_of(inputs_[static_cast<size_t>(trace_.graph().values[value].index)].whole, cell)) {
      continue; // unchanged
    }
    outputs.push_back({whole_tensor(c10::Storage(std::move(storage)), cell), value});
  }
  return outputs;
}

std::vector<bool> Capture::find_donated() const {
  std::vector<bool> donated(inputs_.size());
  for (const auto& entry : entries_) {
    if (!entry->content || entry->parameter == kNoValue || !entry->content->value || !entry->cell->value) {
      continue;
    }
    const LazyValue& before = *entry->cell->value;
    const bool is_written = entry->content->value->id() != entry->parameter;
    const auto input = static_cast<size_t>(trace_.graph().values[entry->parameter].index);
    donated[input] = is_written && before.buffer() && before.refs() == 1 && before.buffer()->owners.load() == 1;
  }
  return donated;
}

// Step: new storages with computed contents become empty; copies from the CPU keep theirs.
void Capture::empty_new_cells() {
  for (const auto& entry : entries_) {
    auto storage = entry->storage.lock();
    if (!storage || entry->content || !entry->cell->value || entry->cell->value->trace() != &trace_) {
      continue;
    }
    BufferRef buffer = trace_.buffer_of(entry->cell->value->id());
    entry->cell->set_value(buffer ? LazyValue::ready(std::move(buffer)) : nullptr);
  }
}

// Ends the capture: the thread records into the outer trace again.
void Capture::leave() {
  number_ = 0;
  Capture* inner = nullptr;
  for (Capture* c = recorder_->capture(device()); c && c != this; c = c->outer_) {
    inner = c;
  }
  if (inner) { // they end in another order
    inner->outer_ = outer_;
  } else {
    recorder_->set_capture(device(), outer_, outer_ ? &outer_->trace_ : nullptr, outer_ ? outer_->number_ : 0);
  }
  if (outer_) {
    outer_->numbers_.insert(outer_->numbers_.end(), numbers_.begin(), numbers_.end());
  }
}

void Capture::end() {
  if (!number_) {
    return;
  }
  {
    auto lock = lock_recorder_uninterrupted(device());
    leave();
    is_step() ? empty_new_cells() : fail_dependent();
  }
  std::exception_ptr error;
  try {
    if (!is_step()) {
      move_out();
    }
  } catch (...) { // no value may stay in this trace
    error = std::current_exception();
  }
  auto lock = lock_recorder_uninterrupted(device());
  entries_.clear();
  index_.clear();
  fail_alive([](ValueId) { return true; }); // contents that no tensor of the capture is known to hold
  inputs_.clear();
  arguments_.clear();
  trace_.clear();
  if (error) {
    std::rethrow_exception(error);
  }
}

Cell& shown_cell(Cell& cell) {
  Capture* capture = Recorder::current().capture(cell.device);
  return capture ? capture->shown(cell) : cell;
}

} // namespace torch_xla
