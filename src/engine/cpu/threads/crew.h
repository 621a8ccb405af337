// The threads of a team that share work inside one parallel region while other threads of the team sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

namespace torch_xla::cpu {

// One thread leads; helpers join when they get a processor, and nobody waits for a late one.
class Crew {
 public:
  using Body = std::function<void(int64_t begin, int64_t end)>;

  Crew() = default;
  Crew(const Crew&) = delete;

  // A helper's part, until end().
  void help();
  // Called by the leader. Cuts [0, n) into ranges of at least `grain`, at most one for each thread, and returns after body has run for all
  // of them. Rethrows the first exception of body.
  void share(int64_t n, int64_t grain, const Body& body);
  // Sets the largest number of helpers, 0 at first. Called by the leader.
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
  // The round's arguments; written while the round is closed and no helper is inside.
  const Body* body_ = nullptr;
  int64_t n_ = 0;
  int64_t range_ = 1;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> is_open_{false};
  std::atomic<int> num_inside_{0}; // helpers that may call body_
  std::atomic<bool> ends_{false};
  std::atomic<uint32_t> round_{0}; // rises when a round opens
  std::mutex mutex_; // a leaf
  std::exception_ptr error_; // guarded by mutex_
};

} // namespace torch_xla::cpu
