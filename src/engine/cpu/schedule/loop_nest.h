// Orders and merges the dimensions of a kernel's domain and gives accesses in terms of the loops.
#pragma once

#include <vector>

#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// Strides on the domain's dimensions; 0 where the value does not move.
struct DomainAccess {
  Dims strides;
  int64_t elements = 0; // addressed in all: large ones decide on the order
  bool stored = false; // decides before a load of the same size: scattered stores cost more than gathers
};

// Sets outer, mid and inner of the spec, whose form and body are there; returns the strides by loop, parallel to `accesses`.
std::vector<Dims> nest_loops(KernelSpec& spec, const Dims& domain, uint32_t reduced, const std::vector<DomainAccess>& accesses);

} // namespace torch_xla::cpu
