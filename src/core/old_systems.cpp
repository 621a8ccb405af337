// Functions that older systems (glibc 2.34, the libstdc++ of GCC 11) lack, at least in the version that a newer system links to. They are
// local to our libraries: other libraries of the process keep the system's. tools/check_symbols.py finds missing ones.
#include <pthread.h>
#include <sys/random.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

// Of glibc 2.36. LLVM makes names of temporary files with it, so any numbers will do.
extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t number;
  if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) {
    number = static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  return number;
}

// GCC 12 gave it a new version, GLIBCXX_3.4.30, with the same behaviour.
void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) {
  pthread_cond_wait(native_handle(), lock.mutex()->native_handle());
}
