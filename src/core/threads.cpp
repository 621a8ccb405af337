// Starts threads with names, and reports a thread that cannot be started.
#include "core/threads.h"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "core/errors.h"

namespace torch_xla {

std::jthread start_thread(const std::string& name, std::function<void()> work) {
  try {
    return std::jthread([name, work = std::move(work)] {
      pthread_setname_np(pthread_self(), name.c_str());
      work();
    });
  } catch (const std::system_error& error) {
    throw UserError(
        ErrorKind::Runtime,
        str("cannot start the thread ",
            name,
            ": ",
            error.code().message(),
            " (the limit of the user's processes and threads, `ulimit -u`, or that of the control group is reached); nothing was lost, the "
            "call can be made again"));
  }
}

} // namespace torch_xla
