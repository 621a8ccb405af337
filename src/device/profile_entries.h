// The device's events for torch.profiler, each with the operation of PyTorch that caused it.
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
  uint64_t operation = 0; // the operation of PyTorch that caused it; 0: none
  RangeRef annotation; // the range of record_function that caused it
  bool is_linked = false; // has one end of an arrow
};

// Gives each step the operation that recorded its node: on the step's device, before the sync of its run.
void link_steps(std::vector<ProfileEntry>& entries);

} // namespace torch_xla
