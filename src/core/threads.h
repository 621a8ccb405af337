// Starts the threads of the library's own.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace torch_xla {

// A new thread that runs `work`, under the name (at most 15 letters) in lists of threads. Throws UserError where the system has none left:
// then nothing has happened, so callers start their thread before they change anything, and may try again later.
std::jthread start_thread(const std::string& name, std::function<void()> work);

} // namespace torch_xla
