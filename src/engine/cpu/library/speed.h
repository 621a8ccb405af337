// How fast one thread multiplies and copies on this machine.
#pragma once

#include "engine/cpu/host.h"

namespace torch_xla::cpu {

// Of several short tries the best, as other processes only make it slower: 2 to 5 ms. By the calling thread alone.
Speeds measure_speeds();

} // namespace torch_xla::cpu
