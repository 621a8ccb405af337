// The transfers' thread and its queue.
#include "engine/cpu/program/transfers.h"

#include <utility>
#include <vector>

#include "core/devices.h"
#include "core/errors.h"
#include "core/threads.h"

namespace torch_xla::cpu {

Transfers& Transfers::get(int device) {
  static auto* all = [] {
    auto* made = new std::vector<Transfers*>;
    for (int index = 0; index < kMaxDevices; ++index) {
      made->push_back(new Transfers(index));
    }
    return made;
  }();
  return *(*all)[static_cast<size_t>(device)];
}

uint64_t Transfers::start(std::function<void()> call) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!has_thread_) {
    start_thread(str("xla_transfers_", device_), [this] { thread_main(); }).detach();
    has_thread_ = true;
  }
  if (!error_) {
    calls_.push_back(std::move(call));
    changed_.notify_all();
  }
  return ++num_started_;
}

void Transfers::wait(uint64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return error_ || num_ended_ >= number; });
  if (error_) {
    std::rethrow_exception(error_);
  }
}

void Transfers::finish() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  calls_.clear();
  changed_.wait(lock, [&] { return !is_running_; });
  num_ended_ = num_started_;
  error_ = nullptr;
}

void Transfers::thread_main() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !calls_.empty(); });
    run_first(lock);
    changed_.notify_all();
  }
}

void Transfers::run_first(std::unique_lock<std::mutex>& lock) {
  std::function<void()> call = std::move(calls_.front());
  calls_.pop_front();
  is_running_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    call();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  is_running_ = false;
  ++num_ended_;
  if (error) {
    error_ = error;
    calls_.clear();
  }
}

} // namespace torch_xla::cpu
