// The time that a test's thread has computed: unlike the clock's it stands still while other processes have the processor.
#pragma once

#include <ctime>

namespace torch_xla {

inline double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

} // namespace torch_xla
