// Measures how fast one thread multiplies and copies on this machine.
#pragma once

#include "engine/cpu/host.h"

namespace torch_xla::cpu {

// The best of several short tries, as other processes only slow it down. Takes 2 to 5 ms, on the calling thread alone.
Speeds measure_speeds();

} // namespace torch_xla::cpu
