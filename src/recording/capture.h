// Capture: what is recorded between two points into a trace of its own: the body of a loop, a region, a step to be replayed.
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

// From construction to end() the thread, with those that work for it, records on the device into the capture's trace: nothing of that runs,
// and operations that need a value of it raise. Cells from outside stay as they are: the capture has contents of its own for them, so other
// threads see nothing of it and go on. Captures of a thread nest. The public members take the recording lock, but for those for the
// recorder.
class Capture {
 public:
  // What the graph reads from outside: a storage, as a tensor of all its elements, or a value, as a tensor that nobody else has.
  struct Input {
    at::Tensor whole;
    ValueId parameter = kNoValue;
    bool is_value = false;
  };
  // A storage that has another content than before, as a tensor of all its elements.
  struct Output {
    at::Tensor whole;
    ValueId value = kNoValue; // a parameter too
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
  // A new tensor that stands for an argument of the body, row-major or with strides that are another dense order of its dims.
  at::Tensor add_argument(c10::ScalarType dtype, at::IntArrayRef sizes, const Dims& strides = {});
  // Which of these arguments have other contents than they had: positions in the list.
  std::vector<size_t> find_written(const std::vector<at::Tensor>& arguments) const;
  // What computes `results` from `arguments`, which are tensors of add_argument() or others that were recorded since the capture began:
  // these are then given and not computed. Throws UserError where a result needs an argument that is not among them.
  Body take(const std::vector<at::Tensor>& arguments, const std::vector<at::Tensor>& results);
  // What is recorded from here on is the gradient of what was recorded since the capture began.
  void mark_backward();
  // What `results` need, beside `given`, of values that were recorded before mark_backward(), in order of the trace: arguments, which are
  // tensors of add_argument(), and values that depend on them. Views and what depends on no argument are computed again.
  std::vector<at::Tensor> find_residuals(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& given);
  // Of a body: tensors that live on with values that need no argument have them in the trace around. Those that need arguments raise an
  // error from here on. Of a step: they hold nothing, until a replay.
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
  // What the storage holds in the capture: the cell itself, or the capture's content in place of one from outside.
  Cell& content_of(const c10::Storage& storage, Cell& cell);
  // As content_of(), of a storage that the capture may not have used.
  Cell& shown(Cell& cell);
  // The parameter for what a cell of content_of() holds, which is no value of the capture's trace; the cell holds it then.
  ValueId add_input(Cell& cell);
  // Calls of the captured graph raise the errors of its operations.
  bool is_told_at_call = false;
  // Of a step, in the order of its parameters.
  const std::vector<Input>& inputs() const {
    return inputs_;
  }
  // What has another content than before, of storages that live on.
  std::vector<Output> outputs() const;
  // By input: its storage is written, and nobody else has its value.
  std::vector<bool> find_donated() const;

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    c10::Storage held; // of one from outside
    Cell* cell = nullptr;
    std::unique_ptr<Cell> content; // of one from outside
    ValueId parameter = kNoValue; // what was read of it first
  };

  Entry& add_entry(const c10::Storage& storage, Cell& cell);
  void settle(const Cell& cell) const;
  // Arguments as they were, though they have been written since.
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
  uint32_t number_ = 0; // 0: it has ended
  std::vector<uint32_t> numbers_; // its own and those of captures within it
  std::vector<std::unique_ptr<Entry>> entries_; // of storages that may be gone
  std::unordered_map<const Cell*, Entry*> index_; // by the cell and by the content in its place
  std::vector<Input> inputs_;
  std::unordered_map<const void*, ValueId> values_; // the parameters of values, by buffer or pending value
  size_t backward_ = 0; // its first node
  std::vector<std::pair<at::Tensor, ValueId>> arguments_;
};

// What the calling thread sees in the cell's place: a capture has contents of its own. The caller holds the recording lock.
Cell& shown_cell(Cell& cell);

} // namespace torch_xla
