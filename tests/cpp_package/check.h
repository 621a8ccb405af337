// EXPECT(condition) of the programs here: prints what does not hold; failures() is for main() to return.
#pragma once

#include <atomic>
#include <cstdio>

inline std::atomic<int> num_failed = 0;

inline int failures() {
  return num_failed == 0 ? 0 : 1;
}

#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      ++num_failed;                                                                \
    }                                                                              \
  } while (0)
