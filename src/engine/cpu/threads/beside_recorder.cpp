// Puts the other thread of a team to sleep by a parallel region in which it does nothing else (docs/decisions/0028).
#include "engine/cpu/threads/beside_recorder.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "core/host_activity.h"
#include "core/metrics.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

// For about so long libgomp's threads spin for the next region at most: 300,000 pauses. Behind a region of run_beside_recorder() as well,
// but that is no reason for the next one: a program that has no other ones is rid of the thread after that time.
constexpr int64_t kSpinNs = 20'000'000;

// A thread that says that it goes to sleep does so within this, or has no processor.
constexpr int64_t kUntilItSaysSoNs = 20'000;
constexpr int64_t kUntilItSleepsNs = 10'000;

thread_local host_activity::Watch watch;
thread_local bool is_beside = false;
thread_local int64_t last_team_ns = 0;

bool has_team_of_all_two() {
  static const int processors = omp_get_num_procs();
  return processors == 2 && omp_get_max_threads() == 2;
}

bool can_leave_processor() {
  return has_team_of_all_two() && !teams_sleep();
}

// Whether half of a step on one thread ends within this.
bool ends_within(int64_t turn_ns, const Work& work) {
  return work && *work * kWorkNs / 2 <= std::max(turn_ns, kLeastTurnNs);
}

template <typename Done>
void spin(int64_t limit_ns, Done done) {
  const int64_t start_ns = metrics::now_ns();
  while (!done() && metrics::now_ns() - start_ns < limit_ns) {
  }
}

// Of run_beside_recorder(), the calling thread's part.
void tell_and_run(const std::function<void()>& tell, const std::function<bool()>& step) {
  if (tell) {
    tell();
    watch.expect_recording();
  }
  run_alone(step);
}

} // namespace

bool has_recorder_beside(const Work& work) {
  return can_leave_processor() && watch.is_recording() && ends_within(watch.rest_of_turn_ns(), work);
}

bool will_have_recorder_beside(const Work& work) {
  return can_leave_processor() && watch.has_long_turns() && ends_within(host_activity::last_turn_ns.load(std::memory_order_relaxed), work);
}

bool has_recorder_beside_all(int64_t alone_ns) {
  const int64_t turn_ns = std::min(host_activity::last_turn_ns.load(std::memory_order_relaxed), host_activity::kLongTurnNs);
  return has_team_of_all_two() && host_activity::num_in_need.load(std::memory_order_relaxed) == 0 && alone_ns / 2 <= turn_ns + kInTheWayNs;
}

bool is_beside_recorder() {
  return is_beside;
}

void run_alone(const std::function<bool()>& step) {
  struct Scope {
    Scope() {
      is_beside = true;
    }
    ~Scope() {
      is_beside = false;
    }
  } scope;
  while (step()) {
  }
}

void note_team() {
  last_team_ns = metrics::now_ns();
}

void run_beside_recorder(const std::function<void()>& tell, const std::function<bool()>& step) {
  if (metrics::now_ns() - last_team_ns > kSpinNs) {
    tell_and_run(tell, step);
    return;
  }
  const uint32_t pauses = host_activity::num_pauses;
  std::atomic<bool> goes_to_sleep{false};
  std::exception_ptr error;
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num() == 0) {
    spin(omp_get_num_threads() == 2 ? kUntilItSaysSoNs : 0, [&] { return goes_to_sleep.load(); });
    spin(kUntilItSleepsNs, [] { return false; });
    try {
      tell_and_run(tell, step);
    } catch (...) {
      error = std::current_exception();
    }
    host_activity::end_rests();
  } else {
    goes_to_sleep = true;
    host_activity::wait_for_pause(pauses);
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

} // namespace torch_xla::cpu
