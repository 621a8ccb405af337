// Puts the last thread of a team to sleep by a parallel region where it only sleeps (docs/decisions/threads.md).
#include "engine/cpu/threads/leave.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "core/host_activity.h"
#include "core/metrics.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/host.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

// Longest spin of libgomp's threads for the next region: 300,000 pauses. They also spin after a region of run_beside_recorder(), but that
// does not count for the next decision: in a program without other regions the thread sleeps after that time.
constexpr int64_t kSpinNs = 20'000'000;

// Longest wait for a thread to announce its sleep: a later one has no processor.
constexpr int64_t kUntilItSaysSoNs = 20'000;
constexpr int64_t kUntilItSleepsNs = 10'000;

thread_local host_activity::Watch watch;
thread_local Crew* crew = nullptr;
thread_local int64_t last_team_ns = 0;

// Otherwise a processor is left for a recorder.
bool has_all_processors() {
  const int threads = omp_get_max_threads();
  return threads > 1 && threads >= host().processors;
}

bool ends_within(int64_t turn_ns, const StepWork& step) {
  const int threads = omp_get_max_threads();
  return step.work && cost_of_leaving(*step.work, threads, step.shares_out ? threads - 1 : 1) <= std::max(turn_ns, kLeastTurnNs);
}

template <typename Done>
void spin(int64_t limit_ns, Done done) {
  const int64_t start_ns = metrics::now_ns();
  while (!done() && metrics::now_ns() - start_ns < limit_ns) {
  }
}

void run_with(Crew& own, const std::function<bool()>& step) {
  struct Scope {
    Crew* const before;
    ~Scope() {
      crew = before;
    }
  } scope{std::exchange(crew, &own)};
  while (step()) {
  }
}

// The calling thread's part of run_beside_recorder().
void tell_and_run(Crew& own, const std::function<void()>& tell, const std::function<bool()>& step) {
  if (tell) {
    tell();
    watch.expect_recording();
  }
  run_with(own, step);
}

} // namespace

int64_t cost_of_leaving(int64_t work, int threads, int left) {
  return static_cast<int64_t>(static_cast<double>(work) * unit_ns() * (1.0 / left - 1.0 / threads));
}

bool has_recorder_beside(const StepWork& step) {
  return has_all_processors() && !teams_sleep() && watch.is_recording() && ends_within(watch.rest_of_turn_ns(), step);
}

bool will_have_recorder_beside(const StepWork& step) {
  return has_all_processors() && !teams_sleep() && watch.has_long_turns() &&
      ends_within(host_activity::last_turn_ns.load(std::memory_order_relaxed), step);
}

bool has_recorder_beside_all(int64_t alone_ns) {
  const int64_t turn_ns = std::min(host_activity::last_turn_ns.load(std::memory_order_relaxed), host_activity::kLongTurnNs);
  return has_all_processors() && host_activity::num_in_need.load(std::memory_order_relaxed) == 0 &&
      alone_ns - alone_ns / omp_get_max_threads() <= turn_ns + kInTheWayNs;
}

bool is_worth_leaving(int64_t work) {
  return static_cast<double>(work) * unit_ns() / std::max(1, omp_get_max_threads() - 1) >= static_cast<double>(kWaitNs);
}

bool is_beside_recorder() {
  return crew;
}

Crew* current_crew() {
  return crew;
}

void run_alone(const std::function<bool()>& step) {
  Crew nobody;
  run_with(nobody, step);
}

void note_team() {
  last_team_ns = metrics::now_ns();
}

void run_beside_recorder(const std::function<void()>& tell, const std::function<bool()>& step) {
  const int threads = omp_get_max_threads();
  if (threads == 1 || (threads == 2 && metrics::now_ns() - last_team_ns > kSpinNs)) {
    Crew nobody;
    tell_and_run(nobody, tell, step);
    return;
  }
  const uint32_t pauses = host_activity::num_pauses;
  std::atomic<bool> goes_to_sleep{false};
  std::exception_ptr error;
  Crew own;
#pragma omp parallel num_threads(threads)
  {
    const int got = omp_get_num_threads();
    if (omp_get_thread_num() == 0) {
      own.set_helpers(std::max(0, got - 2));
      spin(got > 1 ? kUntilItSaysSoNs : 0, [&] { return goes_to_sleep.load(); });
      spin(kUntilItSleepsNs, [] { return false; });
      try {
        tell_and_run(own, tell, step);
      } catch (...) {
        error = std::current_exception();
      }
      own.end();
      host_activity::end_rests();
    } else if (omp_get_thread_num() < got - 1) {
      own.help();
    } else {
      goes_to_sleep = true;
      host_activity::wait_for_pause(pauses);
    }
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

} // namespace torch_xla::cpu
