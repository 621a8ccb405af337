// Capture: a recording between two points, into a trace of its own: the body of a loop, a region, a step to replay.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "recording/recording.h"
#include "trace/body.h"

namespace torch_xla {

// From construction to end() the thread and its helpers record on the device into the capture's trace: none of it runs, and operations that
// need a value of it raise. The capture keeps its own contents for cells from outside, so the cells stay unchanged and other threads go on.
// Captures of a thread nest. The public members, except those for the recorder, take the recording lock.
class Capture {
 public:
  // An input of the graph: a storage, as a tensor of all its elements, or a value, as a tensor that only the capture holds.
  struct Input {
    at::Tensor whole;
    ValueId parameter = kNoValue;
    bool is_value = false;
  };
  // A storage with a new content, as a tensor of all its elements.
  struct Output {
    at::Tensor whole;
    ValueId value = kNoValue; // may be a parameter
  };

  // Throws UserError for a device that does not exist.
  explicit Capture(int device, Trace::Kind kind = Trace::Kind::kBody);
  ~Capture() {
    try {
      end();
    } catch (...) { // in a forked child
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  int device() const {
    return trace_.device();
  }
  // A new tensor for an argument of the body: row-major, or dense with these strides.
  at::Tensor add_argument(c10::ScalarType dtype, at::IntArrayRef sizes, const Dims& strides = {});
  // Positions of the arguments with new contents.
  std::vector<size_t> find_written(const std::vector<at::Tensor>& arguments) const;
  // A body that computes `results` from `arguments`: tensors of add_argument(), or others recorded since the capture began, which are then
  // given and not computed. Throws UserError if a result needs an argument outside the list.
  Body take(const std::vector<at::Tensor>& arguments, const std::vector<at::Tensor>& results);
  // Marks the start of the gradient: the recording since the capture began is the forward part.
  void mark_backward();
  // The values from before mark_backward() that `results` need beside `given`, in order of the trace: arguments (tensors of add_argument())
  // and values that depend on them. Views and values that depend on no argument are computed again.
  std::vector<at::Tensor> find_residuals(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& given);
  // Body: live tensors whose values need no argument move to the outer trace; from here on the others raise. Step: live tensors are empty
  // until a replay.
  void end();

  // For the recorder; the caller holds the recording lock.
  Trace& trace() {
    return trace_;
  }
  uint32_t number() const {
    return number_;
  }
  bool is_step() const {
    return trace_.is_step();
  }
  bool is_made_within(const Cell& cell) const;
  // The storage's content in the capture: the cell itself, or the capture's content for a cell from outside.
  Cell& content_of(const c10::Storage& storage, Cell& cell);
  // As content_of(), for a storage that the capture may not have used.
  Cell& shown(Cell& cell);
  // The parameter for the content, from outside the capture's trace, of a cell of content_of(); the cell then holds it.
  ValueId add_input(Cell& cell);
  // Each call of the captured graph raises the errors of its operations.
  bool is_told_at_call = false;
  // The inputs of a step, in the order of its parameters.
  const std::vector<Input>& inputs() const {
    return inputs_;
  }
  // New contents of storages that live on.
  std::vector<Output> outputs() const;
  // By input: its storage is written, and no other one has its value.
  std::vector<bool> find_donated() const;

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    c10::Storage held; // only for a storage from outside
    Cell* cell = nullptr;
    std::unique_ptr<Cell> content; // only for a storage from outside
    ValueId parameter = kNoValue; // of its first read
  };

  Entry& add_entry(const c10::Storage& storage, Cell& cell);
  void settle(const Cell& cell) const;
  // The tensors' values; those of arguments from before any write.
  std::vector<ValueId> values_of(Recording& recording, const std::vector<at::Tensor>& tensors) const;
  std::vector<Number> numbers_of(const std::vector<ValueId>& scalars) const;
  std::vector<at::Tensor> shared_of(const std::vector<ValueId>& parameters) const;
  void leave();
  void fail_alive(const std::function<bool(ValueId)>& is_failed);
  void fail_dependent();
  void move_out();
  void empty_new_cells();

  const std::shared_ptr<Recorder> recorder_;
  Trace trace_;
  Capture* outer_ = nullptr;
  uint32_t number_ = 0; // 0: ended
  std::vector<uint32_t> numbers_; // its own and those of inner captures
  std::vector<std::unique_ptr<Entry>> entries_; // some storages may be gone
  std::unordered_map<const Cell*, Entry*> index_; // by the cell and by the content that replaces it
  std::vector<Input> inputs_;
  std::unordered_map<const void*, ValueId> values_; // parameters of values, by buffer or pending value
  size_t backward_ = 0; // the first node of the gradient
  std::vector<std::pair<at::Tensor, ValueId>> arguments_;
};

// The calling thread's view of the cell: a capture has its own contents. The caller holds the recording lock.
Cell& shown_cell(Cell& cell);

} // namespace torch_xla
