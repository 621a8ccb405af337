// Whether the program's own threads record operations or wait for runs. A run leaves a thread that records a processor
// (engine/cpu/threads/beside_recorder.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/metrics.h"

namespace torch_xla::host_activity {

inline std::atomic<uint32_t> num_operations{0}; // recorded, modulo 2^32; with several devices some may be missed
inline std::atomic<uint32_t> num_pauses{0}; // waits begun plus rests ended, modulo 2^32
inline std::atomic<int> num_in_need{0}; // threads that wait for a run's results
inline std::atomic<int64_t> last_resume_ns{0}; // the end of the last wait
inline std::atomic<int64_t> last_turn_ns{0}; // how long the last thread to wait had run before

// An operation is recorded. The caller holds the device's recording lock; this only counts.
inline void note_operation() {
  num_operations.store(num_operations.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// Wakes the threads in wait_for_pause().
inline void end_rests() {
  num_pauses.fetch_add(1, std::memory_order_release);
  num_pauses.notify_all();
}

// A longer turn was not recording alone: the program waited for its user or for data.
constexpr int64_t kLongestTurnNs = 50'000'000;

// While it lives, the thread waits for a run: for its results, or only for its end. Any thread.
class Pause {
 public:
  explicit Pause(bool needs_results = true, int64_t begin_ns = 0) : needs_results_(needs_results) { // 0: now
    num_in_need.fetch_add(needs_results_, std::memory_order_relaxed);
    if (resumed_ns != 0) { // else its first wait: the start of its recording is not known
      const int64_t turn_ns = (begin_ns ? begin_ns : metrics::now_ns()) - resumed_ns;
      last_turn_ns.store(std::min(turn_ns, kLongestTurnNs), std::memory_order_relaxed);
    }
    end_rests();
  }
  ~Pause() {
    num_in_need.fetch_sub(needs_results_, std::memory_order_relaxed);
    resumed_ns = end_ns_ ? end_ns_ : metrics::now_ns();
    last_resume_ns.store(resumed_ns, std::memory_order_relaxed);
  }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

  // It ends at this time.
  void set_end(int64_t ns) {
    end_ns_ = ns;
  }

 private:
  const bool needs_results_;
  int64_t end_ns_ = 0;
  inline static thread_local int64_t resumed_ns = 0;
};

// Sleeps until there are more pauses than `seen`.
inline void wait_for_pause(uint32_t seen) {
  num_pauses.wait(seen, std::memory_order_acquire);
}

// Whether it pays to sleep during a turn between two waits.
constexpr int64_t kLongTurnNs = 200'000;
constexpr bool is_long_turn(int64_t ns) {
  return ns > kLongTurnNs;
}

// One thread's view of these counts. Not thread-safe.
class Watch {
 public:
  // Whether a thread has recorded within the last moment, none has begun to wait since, and the turn is long. A moment covers Python
  // between two operations, not a thread that sleeps or reads a file.
  bool is_recording() {
    const uint32_t pauses = num_pauses.load(std::memory_order_relaxed);
    const uint32_t operations = num_operations.load(std::memory_order_relaxed);
    const int64_t now_ns = metrics::now_ns();
    if (pauses != pauses_) {
      pauses_ = pauses;
      operations_ = operations;
      last_ns_ = 0;
    } else if (operations != operations_) {
      operations_ = operations;
      last_ns_ = now_ns;
    }
    const bool is_long = has_long_turns() || is_long_turn(now_ns - last_resume_ns.load(std::memory_order_relaxed));
    return last_ns_ != 0 && now_ns - last_ns_ < kMomentNs && is_long;
  }

  // Whether the next turn will be long, by the last one.
  static bool has_long_turns() {
    return is_long_turn(last_turn_ns.load(std::memory_order_relaxed));
  }

  // The waiting threads have been woken: they record again in a moment.
  void expect_recording() {
    pauses_ = num_pauses.load(std::memory_order_relaxed);
    operations_ = num_operations.load(std::memory_order_relaxed);
    last_ns_ = told_ns_ = metrics::now_ns();
  }

  // Time until the turn ends if it is as long as the last one; negative if it has been longer already.
  int64_t rest_of_turn_ns() const {
    const int64_t begin_ns = std::max(told_ns_, last_resume_ns.load(std::memory_order_relaxed));
    return last_turn_ns.load(std::memory_order_relaxed) - (metrics::now_ns() - begin_ns);
  }

 private:
  // A module's forward takes up to 0.1 ms between two operations; with that limit a GPT of 24 layers recorded in several pieces (measured).
  static constexpr int64_t kMomentNs = 300'000;

  uint32_t pauses_ = 0;
  uint32_t operations_ = 0;
  int64_t told_ns_ = 0; // expect_recording()
  int64_t last_ns_ = 0; // when it last saw a new operation since the last pause; 0: never
};

} // namespace torch_xla::host_activity
