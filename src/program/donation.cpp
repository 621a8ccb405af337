// A run takes the buffers of marked values; donation then works as for values without references.
#include "program/donation.h"

#include <algorithm>

#include "core/errors.h"
#include "core/metrics.h"
#include "trace/cell.h"
#include "trace/recorder.h"

namespace torch_xla {
namespace {

std::atomic<bool> within_steps{false};

Cell& cell_of(const at::Tensor& t) {
  XLA_CHECK_KIND(Value, t.is_privateuseone(), "expected a tensor on the device xla, but got one on ", t.device().str());
  Cell* cell = find_cell(t);
  XLA_CHECK(cell, kNoCell);
  return *cell;
}

bool is_marked(const DeviceState& state, const LazyValue* value) {
  return std::find(state.donors.begin(), state.donors.end(), value) != state.donors.end();
}

bool has_lost_value(const Cell& cell) {
  return cell.value && cell.value->buffer() && !cell.value->buffer()->may_have_value();
}

BufferRef make_lost(const Buffer& buffer) {
  auto lost = std::make_shared<Buffer>(buffer.type(), buffer.strides(), buffer.sharding());
  lost->set_failed(std::make_exception_ptr(
      UserError(ErrorKind::Runtime, "the tensor's memory was given away by _set_buffer_donation(), and a step has taken it")));
  return lost;
}

} // namespace

bool set_buffer_donation(const at::Tensor& tensor, bool on) {
  static metrics::Counter count("XlaSetBufferDonation");
  Cell& cell = cell_of(tensor);
  auto lock = lock_recorder(cell.device);
  DeviceState& state = device_state(cell.device);
  LazyValue* value = cell.value;
  if (!value || !value->buffer()) {
    return false;
  }
  count.add();
  if (on && !is_marked(state, value)) {
    value->ref();
    state.donors.push_back(value);
    cell.previous = nullptr; // a donated content cannot be restored
  } else if (!on && std::erase(state.donors, value) > 0) {
    value->unref();
  }
  return true;
}

bool buffer_donation(const at::Tensor& tensor) {
  Cell& cell = cell_of(tensor);
  auto lock = lock_recorder(cell.device);
  return cell.value && is_marked(device_state(cell.device), cell.value);
}

bool has_lost_value(const at::Tensor& tensor) {
  Cell& cell = cell_of(tensor);
  auto lock = lock_recorder(cell.device);
  return has_lost_value(cell);
}

bool is_lost_for_good(const at::Tensor& tensor) {
  Cell* cell = find_cell(tensor);
  if (!cell) {
    return false;
  }
  auto lock = lock_recorder(cell->device);
  take_back_when_told(*cell);
  return has_lost_value(*cell) && !cell->value->buffer()->has_news();
}

void set_donation_within_steps(bool on) {
  within_steps = on;
}

bool donation_within_steps() {
  return within_steps;
}

GivenAway::GivenAway(DeviceState& state, const std::vector<BufferRef>& inputs, SyncCause cause) : state_(state) {
  const bool gives = cause <= SyncCause::kCompile || within_steps;
  taken_.reserve(state.donors.size());
  std::erase_if(state.donors, [&](LazyValue* value) {
    if (value->refs() == 1) { // no tensor holds it
      value->unref();
      return true;
    }
    const bool is_taken = gives && std::find(inputs.begin(), inputs.end(), value->buffer()) != inputs.end();
    if (is_taken) {
      taken_.emplace_back(value, value->buffer());
    }
    return is_taken;
  });
  for (auto& [value, buffer] : taken_) {
    value->replace_buffer(make_lost(*buffer));
  }
}

GivenAway::~GivenAway() {
  for (auto& [value, buffer] : taken_) {
    value->replace_buffer(std::move(buffer));
    state_.donors.push_back(value); // has room: the value was in it
  }
}

void GivenAway::keep() {
  for (auto& [value, buffer] : taken_) {
    value->unref();
  }
  taken_.clear();
}

} // namespace torch_xla
