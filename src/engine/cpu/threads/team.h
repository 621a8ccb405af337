// A run's team of threads: its size, and how its threads wait for each other.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

#include "engine/cpu/threads/leave.h"

namespace torch_xla::cpu {

// Gives the calling thread a team of `threads` threads (0: ATen's choice) for its parallel regions, at most one thread for each processor
// that the process may use (host.h).
//
// While other processes keep these processors busy, all teams of the process sleep while they wait instead of spinning: a spinning thread
// would keep a processor from the preempted thread that it waits for. The load is measured a few times a second, by the first caller.
// Values do not depend on it. Any thread.
void use_team(int threads);

// While one lives (if wanted), the calling thread's parallel regions and MKL use one thread. MKL has a number of its own, set by
// torch.set_num_threads().
class OneThread {
 public:
  explicit OneThread(bool is_wanted = true);
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  // The numbers before; 0: not wanted.
  int threads_ = 0;
  int mkl_threads_ = 0;
};

// Whether other processes leave a run's team fewer processors than it has threads. Any thread.
bool is_short_of_processors();

// Whether, while other processes hold the processors, one thread of `threads` should run a step with work for `worth` threads alone: that
// costs less than the wait for a preempted thread.
bool is_worth_no_wait(int64_t worth, int threads);

// Whether the calling thread runs a step alone: always while a thread of its team sleeps for a recorder, else if is_worth_no_wait().
bool takes_one_thread(int64_t worth);

// Shares out [0, n) in ranges of at least `grain` among the threads of the calling thread's team that do not sleep for a recorder, and
// calls body(begin, end) for each range. If takes_one_thread(), calls body(0, n) once, and its parallel regions have one thread. Values
// must not depend on the ends of ranges.
template <typename Body>
void share_out(int64_t n, int64_t grain, int64_t worth, const Body& body) {
  if (Crew* crew = current_crew(); crew && crew->has_helpers()) {
    crew->share(n, grain, body);
    return;
  }
  if (takes_one_thread(worth)) {
    OneThread one_thread;
    body(0, n);
    return;
  }
  at::parallel_for(0, n, grain, body);
}

// Begins to measure the load of other processes, so that the first run knows it. Any thread.
void watch_processors();

// Whether teams sleep while they wait now.
bool teams_sleep();

// Sets for tests what use_team() decides: whether teams sleep, and how many processors other processes keep busy.
void let_teams_sleep(bool sleep, int threads, double others = 0);

} // namespace torch_xla::cpu
