// Recorder: what a thread of the program records. Recording: one ATen call, which appends nodes and moves values in and out of cells.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/devices.h"
#include "tensor/cell.h"
#include "tensor/cut.h"
#include "tensor/device_number.h"
#include "tensor/trace.h"

namespace torch_xla {

class Capture;

// What all threads that record on a device share, and its lock, the recording lock: docs/threads.md. A thread holds one recording lock at
// most. What runs under it does not wait for the GIL but in interrupt::poll(): it waits without polling for signals, and the engine has
// been chosen before.
struct DeviceState {
  std::mutex mutex;
  // Of all recorders that have recorded on the device; of one that is gone while something is pending. Guarded by mutex.
  std::vector<std::shared_ptr<Trace>> traces;
  std::vector<LazyValue*> donors; // marked to be given away (tensor/donation.h), with a reference each; guarded by mutex
};
DeviceState& device_state(int device);
// Takes the device's recording lock. Throws UserError in a forked child, where a thread that does not exist may hold it.
std::unique_lock<std::mutex> lock_recorder(int device);

// What a thread of the program records, with the threads that work for it: those of autograd, of torch.jit.fork and of futures' callbacks,
// to which PyTorch hands its at::ThreadLocalState. It has a trace on each device and the thread's settings, and lives as long as such a
// state or its thread.
class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  // The calling thread's, or that of the thread which it works for.
  static Recorder& current();

  // The trace that it appends to on the device: the innermost capture's, or its own. The caller holds the recording lock.
  Trace& trace(int device) {
    Slot& slot = slots_[static_cast<size_t>(device)];
    return slot.innermost ? *slot.innermost : make_trace(device);
  }
  // Its own trace; null: nothing was recorded on the device.
  Trace* find_own_trace(int device) const {
    return slots_[static_cast<size_t>(device)].own.load(std::memory_order_acquire);
  }
  // The innermost capture on the device, or null. The caller holds the recording lock.
  Capture* capture(int device) const {
    return slots_[static_cast<size_t>(device)].capture;
  }
  void set_capture(int device, Capture* capture);
  // The number of the calling thread's innermost capture on the device; 0: there is none. Any thread.
  static uint32_t current_capture(int device) {
    return num_captures_.load(std::memory_order_relaxed) == 0 ? 0 : current().number_of_capture(device);
  }
  // Whether the next operation on the device looks where to cut.
  bool wants_cut(int device) const {
    Trace* trace = find_own_trace(device);
    return !trace || trace->cut().wanted.load(std::memory_order_relaxed);
  }
  // False in eager mode. By default as env::lazy().
  bool is_lazy() const;
  // Its own setting; nullopt: the default. Returns the one before.
  std::optional<bool> set_lazy(std::optional<bool> on);
  // Whether it records what has to be one program: no operation runs it before its end but those that read a value.
  std::atomic<bool> records_one_program{false};
  // Runs of its traces so far, and programs that were made or loaded for them.
  std::pair<int64_t, int64_t> counts() const;
  // Its thread has ended: whoever syncs a device syncs its trace too.
  void leave();

 private:
  enum class Mode : uint8_t { kDefault, kLazy, kEager };
  struct Slot {
    std::atomic<Trace*> own{nullptr};
    Trace* innermost = nullptr; // guarded by the device's recording lock
    Capture* capture = nullptr; // guarded by it
    std::atomic<uint32_t> number{0}; // the capture's
  };

  Trace& make_trace(int device);
  uint32_t number_of_capture(int device) const {
    return slots_[static_cast<size_t>(device)].number.load(std::memory_order_relaxed);
  }

  inline static std::atomic<int> num_captures_{0}; // on all devices, of all recorders
  std::array<Slot, kMaxDevices> slots_{};
  std::vector<std::shared_ptr<Trace>> traces_; // their own; guarded by mutex_
  mutable std::mutex mutex_;
  std::atomic<Mode> mode_{Mode::kDefault};
};

// The recording of one ATen call on a device, whose recording lock it holds from construction to destruction. Never call the dispatcher
// while it lives.
class Recording {
 public:
  explicit Recording(int device);
  // In eager mode hands what was recorded to the device. The values keep an error that this meets.
  ~Recording() {
    if (trace_.cut().wanted.load(std::memory_order_relaxed)) {
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
  // The storage's first bytes, with zeros behind them where it grows.
  void resize(const c10::Storage& storage, size_t nbytes);
  // The value becomes that of a cell which had one of another trace, of the same type. `storage` is the cell's.
  void give(const c10::Storage& storage, Cell& cell, ValueId v);

 private:
  void run_if_eager() noexcept;
  Cell& get_cell(const at::Tensor& tensor) const;
  void resize(Cell& cell, size_t nbytes);
  LazyValue* hold(ValueId v);
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

  const int device_;
  Recorder& recorder_;
  const std::unique_lock<std::mutex> lock_;
  Capture* const capture_; // mostly null
  Trace& trace_;
  const int64_t location_;
};

// A tensor over a buffer that exists, on the buffer's device.
at::Tensor wrap_buffer(BufferRef buffer, const Dims& strides = {});
// A row-major tensor over what a value of the type is or will be.
at::Tensor wrap_value(LazyValue& value, const Type& type, int device);
// Runs the trace in which the cell's value is pending, another one than the caller's. Afterwards the value has a buffer, which has the
// error if there was one. Throws UserError where nothing can run: in a capture, or where no thread can be started.
void run_other_trace(const Cell& cell);
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
