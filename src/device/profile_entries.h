// What torch.profiler is told of the device: events, and the operations on whose behalf they happened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/observer.h"
#include "device/host_ranges.h"

namespace torch_xla {

struct ProfileEntry {
  observer::Event event; // its texts are gone
  std::string name;
  std::string detail;
  int32_t thread = 0;
  int32_t track = 0; // of its device
  uint64_t operation = 0; // of PyTorch, on whose behalf it happened; 0: none
  RangeRef annotation; // likewise
  bool is_linked = false; // has one end of an arrow
};

// Steps get the operations that recorded their nodes: on the step's device, before its run's sync.
void link_steps(std::vector<ProfileEntry>& entries);

} // namespace torch_xla
