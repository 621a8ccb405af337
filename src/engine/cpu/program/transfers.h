// Transfers: the thread on which a device's collectives run beside the other steps of a run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>

namespace torch_xla::cpu {

// For one run at a time: only the thread that runs a program of the device calls the members.
class Transfers {
 public:
  // Never destroyed.
  static Transfers& get(int device);

  // Appends a call and returns its number. Calls run in order, one at a time; if one throws, the rest is dropped.
  uint64_t start(std::function<void()> call);
  // Waits for the call of that number. Throws the error of this or an earlier call.
  void wait(uint64_t number);
  // After an error of the run: drops the calls that have not begun, waits for the current one, and clears their error.
  void finish() noexcept;

 private:
  explicit Transfers(int device) : device_(device) {}
  void thread_main();
  void run_first(std::unique_lock<std::mutex>& lock);

  const int device_;
  std::mutex mutex_; // guards all below; not held while a call runs
  std::condition_variable changed_;
  bool has_thread_ = false;
  std::deque<std::function<void()>> calls_; // calls that have not begun
  bool is_running_ = false;
  uint64_t num_started_ = 0; // since the start of the process, with dropped calls
  uint64_t num_ended_ = 0;
  std::exception_ptr error_;
};

} // namespace torch_xla::cpu
