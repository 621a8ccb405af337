// Orders and merges the dimensions of a kernel's domain into loops, and gives strides of accesses by loop.
#pragma once

#include <vector>

#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// Strides on the domain's dimensions; 0 for broadcast dimensions.
struct DomainAccess {
  Dims strides;
  int64_t elements = 0; // addressed elements: large accesses decide the order
  bool stored = false; // decides before a load of the same size: scattered stores cost more than gathers
};

// Sets outer, mid and inner of a spec with form and body; returns the strides by loop, parallel to `accesses`.
std::vector<Dims> nest_loops(KernelSpec& spec, const Dims& domain, uint32_t reduced, const std::vector<DomainAccess>& accesses);

} // namespace torch_xla::cpu
