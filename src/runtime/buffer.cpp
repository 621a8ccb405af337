// Waits for values, and passes errors to their readers.
#include "runtime/buffer.h"

#include "core/errors.h"
#include "runtime/losses.h"
#include "runtime/wait.h"

namespace torch_xla {
namespace {

std::atomic<bool> some_are_lost{false};

} // namespace

bool has_lost_values() {
  return some_are_lost.load(std::memory_order_relaxed);
}

namespace wait {

std::mutex& mutex() {
  static auto* m = new std::mutex;
  return *m;
}

int& num_waiting() {
  static int number = 0;
  return number;
}

std::atomic<uint64_t>& last_read() {
  static std::atomic<uint64_t> number{0};
  return number;
}

std::condition_variable& changed() {
  static auto* c = new std::condition_variable;
  return *c;
}

void notify() {
  {
    std::lock_guard<std::mutex> lock(mutex()); // a thread that has just found its value missing is now waiting
  }
  changed().notify_all();
}

} // namespace wait

// Row-major has one form, so uploaded and computed values make the same trace key.
Buffer::Buffer(EngineBufferRef payload, DType dtype)
    : type_{dtype, payload->type().dims}, sharding_(payload->sharding()), state_(State::kReady), payload_(std::move(payload)) {
  if (payload_->strides() != contiguous_strides(type_.dims)) {
    strides_ = payload_->strides();
  }
}

Buffer::Buffer(EngineBufferRef payload) : Buffer(payload, payload->type().dtype) {}

Buffer::State Buffer::wait_for_end() const {
  wait::last_read().store(run_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  if (!has_ended()) {
    wait::until([this] { return has_ended(); });
  }
  return state();
}

const EngineBufferRef& Buffer::wait() {
  if (wait_for_end() == State::kFailed) {
    wait::set_told(error_);
  }
  return get();
}

const EngineBufferRef& Buffer::wait_uninterrupted() {
  if (!has_ended()) {
    std::unique_lock<std::mutex> lock(wait::mutex());
    wait::changed().wait(lock, [this] { return has_ended(); });
  }
  if (state() == State::kFailed) {
    wait::set_told(error_);
  }
  return get();
}

bool Buffer::has_news() const {
  return state() == State::kFailed && wait::is_news(error_);
}

const EngineBufferRef& Buffer::get() const {
  State now = state();
  if (now == State::kFailed) {
    std::rethrow_exception(error_);
  }
  XLA_ASSERT(now != State::kQueued, "a buffer was read before the run that fills it");
  XLA_CHECK(payload_ != nullptr, "the value's memory was given to a run that has failed");
  return payload_;
}

void Buffer::set_running(EngineBufferRef payload) {
  payload_ = std::move(payload);
  state_.store(State::kRunning, std::memory_order_release);
}

void Buffer::set_ready() {
  state_.store(State::kReady, std::memory_order_release);
}

void Buffer::set_failed(std::exception_ptr error) {
  some_are_lost.store(true, std::memory_order_relaxed);
  error_ = std::move(error);
  state_.store(State::kFailed, std::memory_order_release);
}

EngineBufferRef Buffer::take() {
  get();
  return std::move(payload_);
}

void Buffer::give_back(EngineBufferRef payload) {
  payload_ = std::move(payload);
}

} // namespace torch_xla
