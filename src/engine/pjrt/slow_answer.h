// A message to who waits for a plugin.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace torch_xla::pjrt {

// While it lives, prints "still waiting for ..." to stderr once if that takes long: libtpu waits for ever on a machine without a TPU.
class SlowAnswer {
 public:
  static constexpr std::chrono::seconds kPatience{10};

  explicit SlowAnswer(std::string what);
  ~SlowAnswer();
  SlowAnswer(const SlowAnswer&) = delete;
  SlowAnswer& operator=(const SlowAnswer&) = delete;

 private:
  void watch();

  const std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool answered_ = false; // guarded by mutex_
  std::jthread thread_; // the last member: it is joined first
};

} // namespace torch_xla::pjrt
