// The rule by which a run leaves processors to other threads, for any number of processors: docs/processors.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine/cpu/threads/crew.h"

namespace torch_xla::cpu {

// A step's work in units of unit_ns() (host.h), one unit being worth a thread. 0: one thread runs it anyway. None: its values depend on the
// number of threads, or it waits for another thread.
using Work = std::optional<int64_t>;

// A step as the rule sees it.
struct StepWork {
  Work work;
  bool shares_out = false; // by share_out(): all threads except the sleeping one take part; else one thread computes it
};

// Extra nanoseconds of a step on `left` of a team's threads.
int64_t cost_of_leaving(int64_t work, int threads, int left);

// Whether to run a step by run_beside_recorder(): the calling thread's team holds all processors, another thread is recording, and it will
// record for longer than the step loses with one thread less. If other processes want the processors, the team sleeps anyway (team.h).
bool has_recorder_beside(const StepWork& step);

// The same if nobody records yet: the start of the step wakes the threads that will record.
bool will_have_recorder_beside(const StepWork& step);

// Whether the calling thread should run alone a program that takes one thread `alone_ns`; all its steps have Work. True if the team holds
// all processors, no thread needs the results yet, and the team with a recorder in its way would take longer.
bool has_recorder_beside_all(int64_t alone_ns);

// Whether steps with this work last so long, on one thread less, that it pays to put that thread to sleep.
bool is_worth_leaving(int64_t work);

// Whether the calling thread now runs steps without the sleeping thread: with its crew, which has no helpers if it runs alone.
bool is_beside_recorder();
Crew* current_crew();

// Calls step() on the calling thread until it returns false, while the last thread of its team sleeps. Parallel regions within have one
// thread; share_out() uses all except the sleeping one. `tell`, which may be empty, is called first: the threads that it wakes then find an
// idle processor, else the system would often give them the caller's. Rethrows exceptions of step().
void run_beside_recorder(const std::function<void()>& tell, const std::function<bool()>& step);

// The same on the calling thread alone: the other threads of the team sleep, or will soon.
void run_alone(const std::function<bool()>& step);

// Notes that the calling thread's team has computed: its other threads spin for some milliseconds before they sleep.
void note_team();

} // namespace torch_xla::cpu
