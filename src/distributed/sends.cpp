// The thread that waits for sends. gloo can report the end of a send only by a wait for it.
#include "distributed/sends.h"

#include <utility>

#include "core/threads.h"

namespace torch_xla {

void Sends::start() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!has_thread_) {
    start_thread("xla_sends", [self = shared_from_this()] { self->thread_main(); }).detach();
    has_thread_ = true;
  }
}

void Sends::add(c10::intrusive_ptr<c10d::Work> work) {
  std::lock_guard<std::mutex> lock(mutex_);
  works_.push_back(std::move(work));
  changed_.notify_one();
}

bool Sends::is_pending() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (error_) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  return !works_.empty();
}

void Sends::close() {
  std::lock_guard<std::mutex> lock(mutex_);
  is_closed_ = true;
  if (!works_.empty()) {
    works_.front()->abort(); // ends the wait for it
  }
  changed_.notify_one();
}

void Sends::thread_main() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_closed_ || !works_.empty(); });
    if (is_closed_) {
      works_.clear();
      return;
    }
    c10::intrusive_ptr<c10d::Work> work = works_.front();
    lock.unlock();
    std::exception_ptr error;
    try {
      work->wait();
    } catch (...) {
      error = std::current_exception();
    }
    work.reset();
    lock.lock();
    works_.pop_front();
    if (error) {
      error_ = error;
      works_.clear();
    }
  }
}

} // namespace torch_xla
