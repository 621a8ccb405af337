// Starts the library's own threads, and ends those of OpenMP.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace torch_xla {

// A new thread that runs `work`, under the name (at most 15 letters) in lists of threads. Throws UserError if the system has no thread
// left. Start a thread before any other change: then the caller can try again later.
std::jthread start_thread(const std::string& name, std::function<void()> work);

// Ends the calling thread's team of OpenMP; its next parallel region starts a new one. libgomp's threads spin for work only while all teams
// of the process together have no more threads than there are processors. With more, each parallel region wakes its threads and puts them
// to sleep: so a team left by eager work would slow runs on another thread, and a team left by a run would slow eager work. A child that is
// forked by a thread with a team waits forever for its threads.
void end_team();

} // namespace torch_xla
