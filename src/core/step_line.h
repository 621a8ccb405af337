// The user's line of the step that a thread runs, for kernels that report where they were called.
#pragma once

#include <cstdint>
#include <utility>

namespace torch_xla {

// While it lives, current() on its thread is the id of this line, for location_text() of trace/source_line.h. Outside of steps it is -1.
class StepLine {
 public:
  explicit StepLine(int64_t line) : outer_(std::exchange(line_, line)) {}
  ~StepLine() {
    line_ = outer_;
  }
  StepLine(const StepLine&) = delete;
  StepLine& operator=(const StepLine&) = delete;

  static int64_t current() {
    return line_;
  }

 private:
  static inline thread_local int64_t line_ = -1;
  const int64_t outer_;
};

} // namespace torch_xla
