// How many devices a process may have.
#pragma once

namespace torch_xla {

// Devices are numbers from 0. Arrays of this length hold one element for each device, found without a look-up.
constexpr int kMaxDevices = 64;

} // namespace torch_xla
