// The threads of a team that share out work inside of one parallel region, so that others of the team may sleep meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

namespace torch_xla::cpu {

// One thread leads it, any number of helpers come when they have a processor: nobody waits for one that is late.
class Crew {
 public:
  using Body = std::function<void(int64_t begin, int64_t end)>;

  Crew() = default;
  Crew(const Crew&) = delete;

  // A helper's part, until end().
  void help();
  // The leader's. Cuts [0, n) in ranges of at least `grain`, one for each thread at most, and returns when body has been called for all of
  // them. What it throws is thrown on, once.
  void share(int64_t n, int64_t grain, const Body& body);
  // How many helpers there may be; the leader's, none at first.
  void set_helpers(int num_helpers) {
    num_helpers_ = num_helpers;
  }
  bool has_helpers() const {
    return num_helpers_ > 0;
  }
  void end();

 private:
  void take_ranges();
  void wait_for_round(uint32_t seen) const;

  int num_helpers_ = 0; // the leader's
  // Of the round; written while it is closed and nobody is in it.
  const Body* body_ = nullptr;
  int64_t n_ = 0;
  int64_t range_ = 1;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> is_open_{false};
  std::atomic<int> num_inside_{0}; // helpers that may call body_
  std::atomic<bool> ends_{false};
  std::atomic<uint32_t> round_{0}; // rises when one opens
  std::mutex mutex_; // a leaf
  std::exception_ptr error_; // guarded by mutex_
};

} // namespace torch_xla::cpu
