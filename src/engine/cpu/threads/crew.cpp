// Rounds of work: helpers enter an open round and take ranges in turn.
#include "engine/cpu/threads/crew.h"

#include <algorithm>
#include <utility>

#include "core/metrics.h"

namespace torch_xla::cpu {
namespace {

// A helper without work for this long sleeps.
constexpr int64_t kSpinNs = 100'000;

} // namespace

void Crew::wait_for_round(uint32_t seen) const {
  const int64_t start_ns = metrics::now_ns();
  while (round_.load(std::memory_order_acquire) == seen && metrics::now_ns() - start_ns < kSpinNs) {
  }
  round_.wait(seen, std::memory_order_acquire);
}

void Crew::take_ranges() {
  for (int64_t begin = next_.fetch_add(range_); begin < n_; begin = next_.fetch_add(range_)) {
    try {
      (*body_)(begin, std::min(n_, begin + range_));
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      error_ = std::current_exception();
    }
  }
}

// A helper announces itself before it checks that the round is open, so the leader that closes the round waits for it.
void Crew::help() {
  while (!ends_) {
    const uint32_t round = round_.load(std::memory_order_acquire);
    ++num_inside_;
    if (is_open_) {
      take_ranges();
    }
    --num_inside_;
    if (!ends_) {
      wait_for_round(round);
    }
  }
}

void Crew::share(int64_t n, int64_t grain, const Body& body) {
  if (n <= 0) {
    return;
  }
  const int64_t threads = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, num_helpers_ + 1);
  body_ = &body;
  n_ = n;
  range_ = (n + threads - 1) / threads;
  next_ = 0;
  if (threads > 1) {
    is_open_ = true;
    ++round_;
    round_.notify_all();
  }
  take_ranges();
  is_open_ = false;
  while (num_inside_ > 0) {
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (error_) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void Crew::end() {
  ends_ = true;
  ++round_;
  round_.notify_all();
}

} // namespace torch_xla::cpu
