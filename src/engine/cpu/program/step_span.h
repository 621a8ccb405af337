// A step of a run, as observers see it.
#pragma once

#include <string_view>

#include "core/observer.h"
#include "core/step_line.h"
#include "engine/engine.h"

namespace torch_xla::cpu {

// From its making to its end, on one thread, the step of the node runs: an event with the user's line, which kernels may ask for.
class StepSpan {
 public:
  StepSpan(observer::Phase phase, int device, std::string_view name, int32_t location, const RunOptions& options)
      : line_(static_cast<size_t>(location) < options.lines.size() ? options.lines[static_cast<size_t>(location)] : -1),
        span_(phase, device, name, StepLine::current()) {
    span_.set_run(options.number);
    span_.set_node(location);
  }
  void set_bytes(int64_t bytes) {
    span_.set_bytes(bytes);
  }

 private:
  const StepLine line_;
  observer::Span span_;
};

} // namespace torch_xla::cpu
