// The team of threads that a run computes with: how many they are, and how they wait for each other.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

#include "engine/cpu/threads/leave.h"

namespace torch_xla::cpu {

// Gives the calling thread a team of `threads` threads (0: ATen's choice) for the parallel regions that it opens, but no more than there
// are processors that the process may use (host.h).
//
// While other processes keep these processors busy, all teams of the process wait by sleep, not by spinning: a thread that spins for one
// that another process has pushed aside keeps a processor from it. That is looked at a few times a second, by whoever comes first. Values
// do not depend on it. Any thread.
void use_team(int threads);

// Ends the calling thread's team, which begins anew with its next parallel region. libgomp's threads wait for work by spinning only while
// all teams of the process together are no more than the processors; beyond that each parallel region puts its threads to sleep and wakes
// them: those of a run where eager work has left a team on another thread, and those of eager work where the last run has left one.
void end_team();

// While one lives, unless it is not wanted, the parallel regions of the calling thread have one thread, and MKL, which
// torch.set_num_threads() has told a number of its own, takes one.
class OneThread {
 public:
  explicit OneThread(bool is_wanted = true);
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  // Before; 0: it was not wanted.
  int threads_ = 0;
  int mkl_threads_ = 0;
};

// Whether others leave a run's team fewer processors than it has threads. Any thread.
bool is_short_of_processors();

// Whether one thread of `threads` does a step that has work for `worth` of them by itself, as others have the processors: it loses less so
// than a thread that is pushed aside would be waited for.
bool is_worth_no_wait(int64_t worth, int threads);

// Whether the calling thread does a step by itself: all that ATen would share out while one of its team sleeps for a recorder, and what is
// worth no wait.
bool takes_one_thread(int64_t worth);

// Shares out [0, n) in ranges of at least `grain` among the calling thread's team, or the threads of it that do not sleep for a recorder.
// They call body(begin, end) for each; where it takes one thread, for [0, n), and parallel regions of that have one thread. Values must not
// depend on where ranges end.
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

// Begins to look, so that the first run knows already how busy others have kept the processors since. Any thread.
void watch_processors();

// Whether teams sleep while they wait now.
bool teams_sleep();

// As use_team() decides it, for a number of processors that others keep busy; for tests.
void let_teams_sleep(bool sleep, int threads, double others = 0);

} // namespace torch_xla::cpu
