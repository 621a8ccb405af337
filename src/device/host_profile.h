// What the device does, for a profile of torch.profiler that asks for the CPU's activity alone.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>

#include "core/observer.h"

namespace torch_xla {

// While it is open, runs, compiles, kernels, transfers and waits of all devices are ranges of the CPU in the profile that the thread has
// open which made it, on the threads that they went on. Profiles of the device's own activity have them from activity_profiler.cpp.
class HostProfile final : public observer::Observer {
 public:
  HostProfile();
  ~HostProfile() override;
  HostProfile(const HostProfile&) = delete;
  HostProfile& operator=(const HostProfile&) = delete;

  // Before the profile ends, which reads then what was told. Any number of times; the caller does not hold the GIL.
  void close();

  void on_event(const observer::Event& event) override;

 private:
  std::shared_ptr<c10::ThreadLocalDebugInfo> profile_; // null once it is closed
  int64_t to_wall_ns_ = 0; // PyTorch's clock minus the observer's
};

} // namespace torch_xla
