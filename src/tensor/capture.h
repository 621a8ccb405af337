// Capture: the body of a loop, recorded once on tensors that stand for its arguments, and the node that runs it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "ir/computation.h"
#include "tensor/recorder.h"

namespace torch_xla {

// A number of a computation: bits of a double or int64, as Trace::add_scalar() takes them.
struct Number {
  DType dtype = DType::I64;
  uint64_t bits = 0;
};

// A recorded body, with what it takes beside its arguments.
struct Body {
  ComputationRef computation;
  std::vector<at::Tensor> shared; // its last parameters: tensors from outside
  std::vector<Number> numbers; // parallel to Graph::scalars
};

// From construction to end() the device records a body: nothing runs, and operations that need a value raise. Other threads that use the
// device wait until the end; captures of one thread nest, and end on it.
class Capture {
 public:
  // Throws UserError for a device that does not exist.
  explicit Capture(int device);
  ~Capture() {
    try {
      end();
    } catch (...) { // in a forked child
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  int device() const {
    return device_;
  }
  // A new tensor that stands for an argument of the body, row-major or with strides that are another dense order of its dims.
  at::Tensor add_argument(c10::ScalarType dtype, at::IntArrayRef sizes, const Dims& strides = {});
  // Which of these arguments have other contents than they had: positions in the list.
  std::vector<size_t> find_written(const std::vector<at::Tensor>& arguments) const;
  // What computes `results` from `arguments`, which are tensors of add_argument() or others that were recorded since the capture began:
  // these are then given and not computed. Throws UserError where a result needs an argument that is not among them, and where the trace
  // was lost meanwhile.
  Body take(const std::vector<at::Tensor>& arguments, const std::vector<at::Tensor>& results);
  // False where the trace was lost since the capture began. The caller holds the recording lock.
  bool is_whole() const;
  // What is recorded from here on is the gradient of what was recorded since the capture began.
  void mark_backward();
  // What `results` need, beside `given`, of values that were recorded before mark_backward(), in order of the trace: arguments, which are
  // tensors of add_argument(), and values that depend on them. Views and what depends on no argument are computed again.
  std::vector<at::Tensor> find_residuals(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& given);
  // The trace becomes as it was before the capture, unless tensors with values that need no argument live on. Tensors that need arguments
  // raise an error from here on.
  void end();

 private:
  // Arguments as they were, though they have been written since.
  std::vector<ValueId> values_of(Recording& recording, const std::vector<at::Tensor>& tensors) const;
  void check_whole() const;

  const int device_;
  uint32_t outer_ = 0; // RecorderState::capture before
  uint32_t number_ = 0; // while this is the innermost
  Trace::Mark mark_;
  size_t backward_ = 0; // its first node
  std::vector<std::pair<at::Tensor, ValueId>> arguments_;
};

// The operands of a loop that are not its body's own; the words are those of LoopAttr (ir/computation.h).
struct LoopCall {
  std::vector<at::Tensor> carried;
  std::vector<at::Tensor> sliced;
  std::optional<int64_t> trips;
  bool reverse = false;
};
// Records the loop and returns its results. Throws UserError where the tensors do not fit the body.
std::vector<at::Tensor> record_loop(int device, const Body& body, const LoopCall& call);
// The bodies with new numbers for what they draw, as if they were recorded again now. Where several draw the same they still do.
std::vector<Body> with_new_draws(int device, std::vector<Body> bodies);
// The numbers of one graph, the same way.
std::vector<Number> draw_again(int device, const std::vector<Computation::Draw>& draws, std::vector<Number> numbers);

} // namespace torch_xla
