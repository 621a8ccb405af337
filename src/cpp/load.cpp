// Registers the device while the library is loaded, so that a program that is linked with it need not call anything, and has the end of the
// main thread wait for the device.
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
#include "engine/cpu/threads/team.h"
#include "runtime/executor.h"

namespace torch_xla {
namespace {

// When main() returns or calls exit(), the main thread's own objects are destroyed first, then static ones, in the order against that of
// their making: also those that runs have made and use, as oneDNN's cache. So no run may go on by then.
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

// An error is not thrown from here, which would end the process: whoever asks for the device gets it from register_all().
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
      cpu::watch_processors();
      register_collectives();
      register_functional_collectives();
      register_device();
      return nullptr;
    } catch (...) { // kept, as PyTorch keeps what is registered by then: a second attempt would fail at that
      return std::current_exception();
    }
  }();
  if (error) {
    std::rethrow_exception(error);
  }
}

} // namespace torch_xla
