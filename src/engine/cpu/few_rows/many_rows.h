// Products of many rows of bfloat16 by weights of 8 and 4 bits: panels of the weight become bfloat16, one after the other.
#pragma once

#include "engine/cpu/few_rows/few_rows.h"
#include "engine/cpu/few_rows/int4_rows.h"

namespace torch_xla::cpu {

constexpr int64_t kPanelColumns = 64;

// Whether the functions below have code for this processor that is as fast as its products of bfloat16.
bool can_multiply_panels();

// `inner` must be even. Uses the calling thread's team. Products and sums as by the processor's instructions, which flush subnormal
// numbers; each number in the same order for any number of threads.
void multiply_panels(const RowProduct& product); // of I8 with scales
// Rounds the numbers of the weight to bfloat16. ATen's blocks must be panels: int4_block(), `columns` a multiple.
void multiply_panels(const Int4Product& product);

} // namespace torch_xla::cpu
