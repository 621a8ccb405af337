// Shows the device's work in a profile of torch.profiler with CPU activity alone.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>

#include "core/observer.h"

namespace torch_xla {

// While it is open, runs, compiles, kernels, transfers and waits of all devices become CPU ranges, on the threads that did them, in the
// open profile of the thread that made this object. Profiles with the device's own activity get them from activity_profiler.cpp.
class HostProfile final : public observer::Observer {
 public:
  HostProfile();
  ~HostProfile() override;
  HostProfile(const HostProfile&) = delete;
  HostProfile& operator=(const HostProfile&) = delete;

  // Call it before the profile ends and reads the ranges. Any number of times; the caller does not hold the GIL.
  void close();

  void on_event(const observer::Event& event) override;

 private:
  std::shared_ptr<c10::ThreadLocalDebugInfo> profile_; // null after close()
  int64_t to_wall_ns_ = 0; // PyTorch's clock minus the observer's
};

} // namespace torch_xla
