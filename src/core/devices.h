// How many devices a process may have.
#pragma once

namespace torch_xla {

// Devices are numbers from 0. What there is one of for each device lies in arrays of this length, so that it is found without a look-up.
constexpr int kMaxDevices = 64;

} // namespace torch_xla
