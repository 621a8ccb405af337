// The one lock and condition on which user threads wait for the executor, with polling for signals.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

#include "core/host_activity.h"
#include "core/process.h"
#include "runtime/interrupt.h"

namespace torch_xla::wait {

std::mutex& mutex(); // never destroyed
std::condition_variable& changed(); // a buffer or the executor's queue changed; with mutex()
int& num_waiting(); // threads in until(); guarded by mutex()
std::atomic<uint64_t>& last_read(); // the run of the result that a thread read last
void notify(); // after set_ready() or set_failed() of a buffer that a thread may wait for
void cancel_runs(); // all that are queued or running
bool is_news(const std::exception_ptr& error); // of a run, and not raised yet
void set_told(const std::exception_ptr& error); // it is being raised, so drain() does not

// Blocks until done() is true; done() is called with mutex() held. `needs_results`: the thread needs a run's results to go on.
template <typename Done>
void until(Done done, bool needs_results = true) {
  process::check();
  std::unique_lock<std::mutex> lock(mutex());
  if (done()) {
    return;
  }
  host_activity::Pause pause(needs_results);
  auto wait_a_while = [&] {
    ++num_waiting();
    const bool is_done = changed().wait_for(lock, std::chrono::milliseconds(50), done);
    --num_waiting();
    return is_done;
  };
  while (!wait_a_while()) {
    lock.unlock();
    interrupt::hear();
    lock.lock();
  }
}

} // namespace torch_xla::wait
