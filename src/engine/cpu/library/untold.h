// Keeps ATen's own calls within a run out of a user's profile.
#pragma once

#include <ATen/record_function.h>

#include <optional>

namespace torch_xla::cpu {

// While it lives, the calls of its thread are no ranges of torch.profiler. A run may use a user's thread; the user's profile already has
// the operation from its recording and the step from the observer, and would count the call a third time.
class Untold {
 public:
  Untold() {
    if (at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION)) { // else the guard would cost more than a small call
      guard_.emplace();
    }
  }

 private:
  std::optional<at::DisableRecordFunctionGuard> guard_;
};

} // namespace torch_xla::cpu
