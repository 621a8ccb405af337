// Steps that run on one thread while the program's own thread records the next ones, which leaves it one of two processors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace torch_xla::cpu {

// For how many threads a step has work, kWorkNs each (cost.h), if its values are the same on any number of them; 0: it is one thread's
// anyway. None: they are not, or it waits for another thread.
using Work = std::optional<int64_t>;

// Whether the calling thread is to run a step by run_beside_recorder(): it has a team of two on two processors that others do not want, a
// thread records now that it keeps from one of them, and will do so for half the step at least. Where others want the processors, its team
// sleeps anyway (team.h).
bool has_recorder_beside(const Work& work);

// The same where nobody records yet, but will from the beginning of the step, as threads are told then that wait.
bool will_have_recorder_beside(const Work& work);

// Whether the calling thread is to run a whole program alone, all of whose steps have Work, if it takes one thread so long: it would have a
// team of two on two processors, no thread needs its results yet, and the team would take longer, as a recorder is in its way.
bool has_recorder_beside_all(int64_t alone_ns);

// Whether the calling thread runs steps alone now.
bool is_beside_recorder();

// Calls step() on the calling thread until it returns false, while the team's other thread sleeps. Parallel regions in it have one thread
// if that one was awake; else steps see to it themselves (is_beside_recorder(), OneThread): more would wake it.
// `tell`, which may be empty, is called first: threads that it wakes find a processor idle then, where the system would give them back the
// one that they had last, and that is often the caller's. What step() throws is thrown on.
void run_beside_recorder(const std::function<void()>& tell, const std::function<bool()>& step);

// The same where the team's other thread is left alone: it sleeps, or will soon.
void run_alone(const std::function<bool()>& step);

// The calling thread's team has computed: its other thread spins for some milliseconds before it sleeps.
void note_team();

} // namespace torch_xla::cpu
