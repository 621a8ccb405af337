// Starts the library's own threads.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace torch_xla {

// A new thread that runs `work`, under the name (at most 15 letters) in lists of threads. Throws UserError if the system has no thread
// left. Start a thread before any other change: then the caller can try again later.
std::jthread start_thread(const std::string& name, std::function<void()> work);

} // namespace torch_xla
