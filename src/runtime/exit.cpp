// The end of the process: runs in progress, and errors that were never raised.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "core/process.h"
#include "runtime/queue.h"
#include "runtime/wait.h"

namespace torch_xla {
namespace {

// The handler's longest wait for runs in progress.
constexpr auto kExitLimit = std::chrono::seconds(60);

// Takes the errors that were never raised. The caller holds the lock.
std::vector<std::exception_ptr> take_errors() {
  std::vector<std::exception_ptr> errors;
  for (Queue& q : queues().of_device) {
    if (q.first_error) {
      errors.push_back(std::exchange(q.first_error, nullptr));
    }
  }
  return errors;
}

void write_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "Exception ignored in a program of the XLA device that nobody waited for:\n%s\n", e.what());
  } catch (...) {
    std::fprintf(stderr, "Exception ignored in a program of the XLA device that nobody waited for\n");
  }
}

} // namespace

// At exit runs in progress may end and queued ones are dropped, so that static destructors find no thread of ours at work. A device that
// hangs delays the exit for a while only: then the process ends without destructors.
void stop_at_exit(int status, void* /*unused*/) {
  if (process::in_forked_child()) {
    return;
  }
  Queues& all = queues();
  std::unique_lock<std::mutex> lock(wait::mutex());
  all.stop = true;
  for (Queue& q : all.of_device) {
    q.is_started = false;
    q.work.notify_all();
  }
  bool ended = wait::changed().wait_for(lock, all.gave_up ? std::chrono::seconds(0) : kExitLimit, [] {
    return find_devices([](const Queue& q) { return q.num_started > 0; }).empty();
  });
  std::vector<std::exception_ptr> errors = take_errors();
  lock.unlock();
  std::for_each(errors.begin(), errors.end(), write_error);
  if (!ended) {
    std::fprintf(stderr, "torch_xla: the device has not ended its programs; the process ends without them\n");
    std::fflush(nullptr);
    _exit(status ? status : 1);
  }
  if (!errors.empty() && status == 0) {
    std::exit(1); // runs the handlers that are left
  }
}

} // namespace torch_xla
