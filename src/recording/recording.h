// Recording: one ATen call, which appends nodes to a trace and moves values in and out of cells.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <span>

#include "trace/cell.h"
#include "trace/device_number.h"
#include "trace/recorder.h"
#include "trace/trace.h"

namespace torch_xla {

class Capture;

// The recording of one ATen call on a device. Holds the recording lock from construction to destruction: never call the dispatcher
// meanwhile.
class Recording {
 public:
  explicit Recording(int device);
  // In eager mode hands the recording to the device; its error stays in the values.
  ~Recording() {
    if (trace_.cut().wanted.load(std::memory_order_relaxed)) {
      run_if_eager();
    }
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // The device tensor's shown elements, as a value of its dims. Throws UserError naming both devices for a tensor of another one.
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
  // Sets the tensor's content to v, which has its dims and dtype.
  void write(const at::Tensor& tensor, ValueId v);
  // As write, after conversion and broadcasting.
  void write_converted(const at::Tensor& tensor, ValueId v);
  Trace& trace() {
    return trace_;
  }
  // A new tensor with the value; strides empty means contiguous.
  at::Tensor wrap(ValueId v, const Dims& strides = {});
  // Shares the content of the source's whole storage: no node, and no copy until one of the two is written.
  bool share(const at::Tensor& destination, const at::Tensor& source);
  // Keeps the storage's first bytes; zeros fill the rest.
  void resize(const c10::Storage& storage, size_t nbytes);
  // Cuts the tensor's content over the devices of its programs, and later contents too if it fills its storage and no other view of that is
  // marked.
  void mark(const at::Tensor& tensor, const Sharding& sharding);
  // Replaces the cell's value of another trace by v, of the same type. `storage` is the cell's.
  void give(const c10::Storage& storage, Cell& cell, ValueId v);

 private:
  void run_if_eager() noexcept;
  Cell& get_cell(const at::Tensor& tensor) const;
  void resize(Cell& cell, size_t nbytes);
  LazyValue* hold(ValueId v);
  void check_writable(const Cell& cell) const;
  ValueId content(Cell& cell);
  // For a storage that nobody has written and that the tensor fills: a transpose gets the geometry of its original.
  static void set_blank_geometry(Cell& cell, const at::Tensor& t);
  bool find_uninitialized(Cell& cell) const;
  ValueId flat_content(Cell& cell);
  void ensure_base(Cell& cell, const at::Tensor& t);
  void ensure_dtype(Cell& cell, DType dtype);
  ValueId one_of_each(const at::Tensor& t, ValueId v);
  void reinterpret(Cell& cell, const Type& result);
  void set_content(Cell& cell, ValueId v);
  ValueId constrain(ValueId v, const Sharding& sharding);
  ValueId as_marked(const Cell& cell, const Dims& dims, const Dims& strides, ValueId v);
  void note_order(ValueId v, const Dims& dims, const Dims& strides);
  void keep_previous(Cell& cell);

  const int device_;
  Recorder& recorder_;
  const RecordingLock lock_;
  Capture* const capture_; // mostly null
  Trace& trace_;
  const int64_t location_;
};

// A tensor over a buffer that exists, on the buffer's device.
at::Tensor wrap_buffer(BufferRef buffer, const Dims& strides = {});
// A row-major tensor over the value, of this type and maybe pending.
at::Tensor wrap_value(LazyValue& value, const Type& type, int device);
// Runs the trace, not the caller's, in which the cell's value is pending. Afterwards the value has a buffer, with the error if there was
// one. Throws UserError if nothing can run: in a capture, or if no thread can start.
void run_other_trace(const Cell& cell);
// Replaces the content of a tensor that fills its storage by the buffer.
void write_buffer(const at::Tensor& tensor, BufferRef buffer);
// untyped_storage().resize_(): keeps the bytes that fit.
void resize_storage_bytes(const c10::Storage& storage, size_t nbytes);
// Throws if the tensor exceeds a storage of this size: eager would read or write foreign memory.
void check_bounds(const at::Tensor& tensor, size_t storage_nbytes);

// Whether nodes may have values of this type: native types, and complex ones if library calls compute them.
bool is_recordable(DType type);
// A device tensor or a CPU number, with a dtype that rows compute.
inline bool is_native_tensor(const at::Tensor& t) {
  return is_native(to_dtype(t.scalar_type())) && (t.is_privateuseone() || t.dim() == 0);
}

} // namespace torch_xla
