// Philox 4x32-10 counter-based random bits, in as many lanes as the builder has.
#pragma once

#include "engine/cpu/codegen/vec.h"

namespace torch_xla::cpu {

// One of the four words for counter (index low, index high, offset low, offset high) and key (seed low, seed high). All operands are I64:
// the seed and the offset scalars, the index of the builder's width.
Value* emit_philox(const Vec& v, Value* seed, Value* offset, Value* index, unsigned word);

} // namespace torch_xla::cpu
