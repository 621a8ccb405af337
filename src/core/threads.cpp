// Starts threads with names, reports a thread that cannot be started, and ends OpenMP's.
#include "core/threads.h"

#include <omp.h>
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

void end_team() {
  omp_pause_resource(omp_pause_soft, omp_get_initial_device());
}

} // namespace torch_xla
