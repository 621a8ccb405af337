// The rule by which a run leaves processors to others, on any number of them: docs/processors.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine/cpu/threads/crew.h"

namespace torch_xla::cpu {

// For how many threads a step has work, unit_ns() each (host.h), if its values are the same on any number of them; 0: it is one thread's
// anyway. None: they are not, or it waits for another thread.
using Work = std::optional<int64_t>;

// A step as the rule sees it.
struct StepWork {
  Work work;
  bool shares_out = false; // by share_out(), so that all threads but the one that sleeps take part; else one thread computes it
};

// What a step takes longer, in nanoseconds, by `left` of the threads of a team.
int64_t cost_of_leaving(int64_t work, int threads, int left);

// Whether the calling thread is to run a step by run_beside_recorder(): its team has all processors, a thread records now that it keeps
// from one of them, and goes on longer than the step loses by a thread less. Where others want the processors, its team sleeps anyway
// (team.h).
bool has_recorder_beside(const StepWork& step);

// The same where nobody records yet: the beginning of the step wakes the threads that will.
bool will_have_recorder_beside(const StepWork& step);

// Whether the calling thread is to run alone a program that takes one thread `alone_ns`. All its steps have Work. True if the team has all
// processors, no thread needs the results yet, and the team, with a recorder in its way, would take longer.
bool has_recorder_beside_all(int64_t alone_ns);

// Whether steps with so much work take a team of one thread less so long that it pays that the thread goes to sleep.
bool is_worth_leaving(int64_t work);

// Whether the calling thread runs steps without the thread that sleeps now: by its crew, which has no helpers where it is alone.
bool is_beside_recorder();
Crew* current_crew();

// Calls step() on the calling thread until it returns false, while the last thread of its team sleeps. Parallel regions in it have one
// thread; share_out() has all but that one. `tell`, which may be empty, is called first: threads that it wakes find a processor idle then,
// where the system would give them back the one that they had last, and that is often the caller's. What step() throws is thrown on.
void run_beside_recorder(const std::function<void()>& tell, const std::function<bool()>& step);

// The same by the calling thread alone, where the others are left alone: they sleep, or will soon.
void run_alone(const std::function<bool()>& step);

// The calling thread's team has computed: its other threads spin for some milliseconds before they sleep.
void note_team();

} // namespace torch_xla::cpu
