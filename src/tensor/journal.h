// CellJournal: which storages a step that is captured reads and writes, and what they held before.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

#include "tensor/cell.h"
#include "tensor/trace.h"

namespace torch_xla {

// Made where the trace is empty. All members are called under the device's recording lock.
class CellJournal {
 public:
  // A storage, as a tensor of all its elements.
  struct Input {
    at::Tensor whole;
    ValueId parameter = kNoValue;
    bool is_constant = false; // of the step: `whole` is nobody else's
  };
  struct Output {
    at::Tensor whole;
    ValueId value = kNoValue; // a parameter too
  };

  // `capture`: of the step (RecorderState::capture); cells made in it are new.
  explicit CellJournal(uint32_t capture) : capture_(capture) {}
  // Before the recorder reads or writes the tensor's storage.
  void note(const at::Tensor& tensor, Cell& cell);
  // A new tensor whose value is this parameter of the trace.
  void note_parameter(const at::Tensor& tensor, Cell& cell, ValueId parameter);
  // The parameter that stands for the buffer which the cell holds. Storages that hold one buffer have a parameter each. What was copied to
  // a new storage from the CPU is a constant of the step.
  ValueId parameter(Cell& cell, Trace& trace);
  // `to` has been given what `from` holds.
  void share(Cell& to, Cell& from, Trace& trace);

  // At the end of the capture: what the trace's parameters are read from, in their order, and what lives on and has got a value.
  std::vector<Input> inputs() const {
    return inputs_;
  }
  std::vector<Output> outputs() const;
  // Puts back what was held before; what is new and was to be computed holds nothing.
  void restore();

 private:
  struct Content {
    BufferRef buffer; // null: nothing, or it is new
    PreviousRef previous;
    DType dtype = DType::Undefined;
    Dims dims;
    Dims strides;
    size_t nbytes = 0;
  };
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    c10::Storage held; // of one that had content before
    Cell* cell = nullptr;
    Content before;
    BufferRef buffer; // that `parameter` stands for
    ValueId parameter = kNoValue;
  };

  bool is_new(const Cell& cell) const {
    return cell.capture >= capture_;
  }
  Entry& entry(Cell& cell);

  const uint32_t capture_;

  std::vector<Entry> entries_; // of storages that may be gone
  std::unordered_map<Cell*, size_t> index_; // of the last entry of a cell at this address
  std::vector<Input> inputs_;
};

} // namespace torch_xla
