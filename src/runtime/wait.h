// The one lock and condition on which user threads wait for the executor, with polling for signals and a check for forked processes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>

namespace torch_xla::wait {

std::mutex& mutex(); // never destroyed
std::condition_variable& changed(); // a buffer or the executor's queue changed; with mutex()
void notify(); // after set_ready() or set_failed() of a buffer that a thread may wait for
bool in_forked_child(); // see executor.cpp
void check_process(); // throws UserError in a forked child
void set_reported(const std::exception_ptr& error); // a wait for a value throws it, so drain() need not
void poll_interrupt(); // the check that set_interrupt_check gave; may throw

// Blocks until done() is true; done() is called with mutex() held.
template <typename Done>
void until(Done done) {
  check_process();
  std::unique_lock<std::mutex> lock(mutex());
  while (!changed().wait_for(lock, std::chrono::milliseconds(50), done)) {
    lock.unlock();
    poll_interrupt();
    lock.lock();
  }
}

} // namespace torch_xla::wait
