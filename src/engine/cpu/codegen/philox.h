// Philox 4x32-10 counter-based random bits, in as many lanes as the builder has.
#pragma once

#include <array>

#include "engine/cpu/codegen/vec.h"

namespace torch_xla::cpu {

// The four words for counter (index low, index high, offset low, offset high) and key (seed low, seed high). All operands are I64.
std::array<Value*, 4> emit_philox(const Vec& v, Value* seed, Value* offset, Value* index);

} // namespace torch_xla::cpu
