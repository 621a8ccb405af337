// Runs the C++ tests, with the verifiers of graphs and schedules on.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  setenv("XLA_VERIFY", "1", /*replace=*/0);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
