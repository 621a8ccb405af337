// Recorder: appends one node per ATen call to its device's pending trace and moves values in and out of cells.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tensor/cell.h"
#include "tensor/cut.h"
#include "tensor/device_number.h"
#include "tensor/trace.h"

namespace torch_xla {

class CellJournal;

// A device's pending trace and its lock, the recording lock: docs/threads.md. A thread holds one recording lock at most. What runs under it
// does not wait for the GIL but in interrupt::poll(): it waits without polling for signals, and the engine has been chosen before.
struct RecorderState {
  std::mutex mutex;
  Trace trace; // guarded by mutex
  size_t next_check = kFirstTraceCheck; // nodes at which cut_long_trace looks again; guarded by mutex
  int64_t next_input_check = kFirstInputCheck; // bytes of inputs at which it does so; guarded by mutex
  bool cut_planned = false; // next_check is the place of the cut; guarded by mutex
  std::atomic<bool> wants_cut{true}; // the first operation looks whether
  // The number of the innermost body that is being recorded (tensor/capture.h), 0 outside of all. Until it ends nothing runs, only tensors
  // made since are written, and all threads but the one that records it wait for the lock. Written under the mutex.
  std::atomic<uint32_t> capture{0};
  std::thread::id capture_thread; // guarded by mutex
  std::condition_variable capture_ended;
  std::vector<LazyValue*> donors; // marked to be given away (tensor/donation.h), with a reference each; guarded by mutex
  CellJournal* journal = nullptr; // while a step is captured to be replayed (tensor/step_graph.h); guarded by mutex
};
RecorderState& recorder(int device);
// Takes the device's recording lock. Throws UserError in a forked child, where a thread that does not exist may hold it.
std::unique_lock<std::mutex> lock_recorder(int device);

// The recording of one ATen call on a device, whose recording lock it holds from construction to destruction. Never call the dispatcher
// while it lives.
class Recording {
 public:
  explicit Recording(int device);
  // In eager mode hands what was recorded to the device. The values keep an error that this meets.
  ~Recording() {
    if (state_.wants_cut.load(std::memory_order_relaxed)) {
      run_if_eager();
    }
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // The elements that the device tensor shows, as a value of its dims. Throws UserError naming both devices for a tensor of another one.
  ValueId read(const at::Tensor& tensor);
  // As read; a 0-d CPU tensor becomes a number of the program's parameters.
  ValueId read_operand(const at::Tensor& tensor);
  ValueId scalar(const at::Scalar& value);
  ValueId scalar_double(double value);
  ValueId scalar_int(int64_t value);
  ValueId node(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, std::span<const Type> results);
  ValueId node(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, const Type& result) {
    return node(op, std::move(operands), std::move(attrs), std::span<const Type>(&result, 1));
  }
  ValueId convert(ValueId v, DType dtype);
  ValueId conjugate(ValueId v); // of a complex type
  ValueId negate(ValueId v);
  // Numpy broadcasting to dims.
  ValueId broadcast(ValueId v, const Dims& dims);
  ValueId full(DType dtype, const Dims& dims, ValueId value);
  ValueId zeros(DType dtype, const Dims& dims);

  const Type& type(ValueId v) const {
    return trace_.graph().type(v);
  }
  const Graph& graph() const {
    return trace_.graph();
  }
  // Makes the value the content of the tensor: v has the tensor's dims and dtype.
  void write(const at::Tensor& tensor, ValueId v);
  // As write, after conversion and broadcasting.
  void write_converted(const at::Tensor& tensor, ValueId v);
  Trace& trace() {
    return trace_;
  }
  // A new tensor with the value; strides empty means contiguous.
  at::Tensor wrap(ValueId v, const Dims& strides = {});
  // The content of the tensor's whole storage as another tensor's: no node, no copy until one of them is written.
  bool share(const at::Tensor& destination, const at::Tensor& source);
  // The cell's first bytes, with zeros behind them where it grows.
  void resize(Cell& cell, size_t nbytes);

 private:
  void run_if_eager() noexcept;
  Cell& get_cell(const at::Tensor& tensor) const;
  void check_writable(const Cell& cell) const;
  ValueId content(Cell& cell);
  ValueId flat_content(Cell& cell);
  void ensure_base(Cell& cell, const at::Tensor& t);
  void ensure_dtype(Cell& cell, DType dtype);
  ValueId one_of_each(const at::Tensor& t, ValueId v);
  void reinterpret(Cell& cell, const Type& result);
  void set_content(Cell& cell, ValueId v);
  void note_order(ValueId v, const Dims& dims, const Dims& strides);
  void keep_previous(Cell& cell);
  void note_wrapped(const at::Tensor& tensor, Cell& cell, ValueId v);

  const int device_;
  RecorderState& state_;
  Trace& trace_;
  std::unique_lock<std::mutex> lock_;
  int64_t location_;
};

// A tensor over a buffer that exists, on the buffer's device.
at::Tensor wrap_buffer(BufferRef buffer, const Dims& strides = {});
// Makes the buffer the content of the tensor, whose elements fill its storage.
void write_buffer(const at::Tensor& tensor, BufferRef buffer);
// Throws when the tensor reaches outside of a storage of so many bytes: eager would read or write foreign memory.
void check_bounds(const at::Tensor& tensor, size_t storage_nbytes);

// Whether nodes may have values of this type: native ones, and complex ones where library calls compute on them.
bool is_recordable(DType type);
// A device tensor or a CPU number, of a dtype that rows compute on.
inline bool is_native_tensor(const at::Tensor& t) {
  return is_native(to_dtype(t.scalar_type())) && (t.is_privateuseone() || t.dim() == 0);
}

} // namespace torch_xla
