// Registers the device while the library is loaded, so linked programs need no call. Makes the end of the main thread wait for the device.
#include "cpp/load.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>

#include "core/process.h"
#include "device/device.h"
#include "distributed/collectives.h"
#include "distributed/functional.h"
#include "engine/engine.h"
#include "runtime/executor.h"

namespace torch_xla {
namespace {

// When main() returns or calls exit(), the main thread's own objects are destroyed first, then static ones, in reverse order of their
// construction: also objects that runs use, such as oneDNN's cache. So runs must have ended by then.
struct MainThread {
  ~MainThread() {
    if (process::is_used() && gettid() == getpid()) {
      Executor::finish(std::chrono::seconds(60));
    }
  }
};

void wait_at_end_of_main_thread() {
  thread_local const MainThread thread; // where another thread loads the library this does nothing
}

void write_error(const char* what) {
  std::fprintf(stderr, "torch_xla: the device xla is not registered: %s\n", what);
}

// Throwing here would end the process, so the error is kept: register_all() throws it at a use of the device.
bool register_at_load() noexcept {
  wait_at_end_of_main_thread();
  try {
    register_all();
    return true;
  } catch (const c10::Error& error) {
    write_error(error.what_without_backtrace());
  } catch (const std::exception& error) {
    write_error(error.what());
  }
  return false;
}

[[maybe_unused]] const bool is_registered = register_at_load();

} // namespace

void register_all() {
  static const std::exception_ptr error = []() -> std::exception_ptr {
    try {
      watch_processors();
      register_collectives();
      register_functional_collectives();
      register_device();
      return nullptr;
    } catch (...) { // not retried: PyTorch keeps the partial registration, and a second attempt would fail at it
      return std::current_exception();
    }
  }();
  if (error) {
    std::rethrow_exception(error);
  }
}

} // namespace torch_xla
