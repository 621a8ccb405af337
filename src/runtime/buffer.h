// Buffer: a value that exists or that a queued run will compute, shared by cells and queued runs.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <utility>

#include "engine/engine.h"

namespace torch_xla {

// States go kQueued -> (kRunning ->) kReady | kFailed, once. Only the run that took a buffer by donation still sees it.
class Buffer {
 public:
  enum class State : uint8_t { kQueued, kRunning, kReady, kFailed };

  Buffer(Type type, Dims strides, ShardingRef sharding = nullptr)
      : type_(std::move(type)), strides_(std::move(strides)), sharding_(std::move(sharding)) {}
  explicit Buffer(EngineBufferRef payload);
  // A ready buffer; the payload's elements have the type that stores `dtype`.
  Buffer(EngineBufferRef payload, DType dtype);

  // As tensors report it; the payload's elements may be narrower (env::float_storage()).
  const Type& type() const {
    return type_;
  }
  // Memory order of the payload, known before the run; empty: row-major.
  const Dims& strides() const {
    return strides_;
  }
  // How the payload lies on the devices, known before the run.
  const ShardingRef& sharding() const {
    return sharding_;
  }
  State state() const {
    return state_.load(std::memory_order_acquire);
  }
  // Blocks until ready. Throws the run's error if it failed; the error then counts as raised. Polls for signals (interrupt::hear()),
  // which may take the GIL: not under the recording lock.
  const EngineBufferRef& wait();
  // As wait(), without polling.
  const EngineBufferRef& wait_uninterrupted();
  // As wait(), but does not throw if the run failed.
  State wait_for_end() const;
  // True for the buffer of a run whose error has not been raised yet.
  bool has_news() const;
  // False if no read can give a value any more: the run failed, or a failed run took the memory.
  bool may_have_value() const {
    State now = state();
    return now != State::kFailed && (now == State::kQueued || payload_);
  }
  // The payload without waiting, even during its run, for the executor: it starts runs in order. Throws the run's error if the buffer
  // failed.
  const EngineBufferRef& get() const;

  // The number of the run that computes the value; 0: none. See Run::outputs.
  void set_run(uint64_t number) {
    run_.store(number, std::memory_order_relaxed);
  }
  void set_running(EngineBufferRef payload);
  // Threads in wait() see it once the caller has taken the lock of runtime/wait.h and notified.
  void set_ready();
  void set_failed(std::exception_ptr error);
  // Gives the payload away (donation), and takes it back from a run that failed. Executor thread only.
  EngineBufferRef take();
  void give_back(EngineBufferRef payload);

  // The newest trace that reads this buffer, and the slot of its parameter there (Trace::find_parameter()); guarded by the device's
  // recording lock.
  uint64_t trace_generation = 0;
  int32_t trace_value = -1;
  // Number of lazy values and readers that refer to this buffer, without queued runs: at 0 a run may take the memory. It rises from 0 only
  // under the recording lock, which also guards the queueing of runs, and falls on any thread.
  std::atomic<int32_t> owners{0};
  // Number of Previous objects that hold this buffer, for tensors that take it back if a run fails or has failed. It changes by the rules
  // of `owners`.
  std::atomic<int32_t> kept{0};
  bool is_shard = false; // another value on each device, from a manual region; guarded by the recording lock
  int32_t num_replaced = 0; // for find_donated(), which leaves it at 0; guarded by the recording lock

 private:
  Type type_;
  Dims strides_;
  ShardingRef sharding_;
  bool has_ended() const {
    return state() >= State::kReady;
  }

  std::atomic<State> state_{State::kQueued};
  std::atomic<uint64_t> run_{0};
  EngineBufferRef payload_;
  std::exception_ptr error_;
};
using BufferRef = std::shared_ptr<Buffer>;

// A reader of the buffer's memory: while one lives no run takes it. Made under the recording lock, from a buffer that a cell refers to.
class BufferReader {
 public:
  explicit BufferReader(BufferRef buffer) : buffer_(std::move(buffer)) {
    buffer_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  ~BufferReader() {
    if (buffer_) {
      buffer_->owners.fetch_sub(1, std::memory_order_acq_rel);
    }
  }
  BufferReader(BufferReader&&) noexcept = default;
  BufferReader& operator=(BufferReader&&) = delete;
  Buffer* operator->() const {
    return buffer_.get();
  }

 private:
  BufferRef buffer_;
};

// A reference that counts in Buffer::kept.
class KeptBuffer {
 public:
  KeptBuffer() = default;
  explicit KeptBuffer(BufferRef buffer) : buffer_(std::move(buffer)) {
    if (buffer_) {
      buffer_->kept.fetch_add(1, std::memory_order_relaxed);
    }
  }
  ~KeptBuffer() {
    if (buffer_) {
      buffer_->kept.fetch_sub(1, std::memory_order_acq_rel);
    }
  }
  KeptBuffer(KeptBuffer&&) noexcept = default;
  KeptBuffer& operator=(KeptBuffer&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  const BufferRef& get() const {
    return buffer_;
  }

 private:
  BufferRef buffer_;
};

// A storage's value before a run replaced it. The storage's cell and the run hold it; a run that ends well empties it, and after a failure
// the cell takes the value back. The executor's thread writes `buffer` and `before`; others read them only after a failure.
struct Previous {
  KeptBuffer buffer;
  std::shared_ptr<Previous> before; // the value that `buffer` replaced, while the run of `buffer` may still fail
  // The value's layout in the storage.
  DType dtype = DType::Undefined;
  Dims dims;
  Dims strides;
};
using PreviousRef = std::shared_ptr<Previous>;
} // namespace torch_xla
