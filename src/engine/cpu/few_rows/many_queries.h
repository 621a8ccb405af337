// Attention of many queries, as of a prompt or an image: oneDNN's products of small blocks, and a running softmax between them.
#pragma once

#include "engine/cpu/few_rows/few_queries.h"

namespace torch_xla::cpu {

// Whether attend_by_blocks() has code for this processor, and is faster than ATen's flash attention there.
bool can_attend_by_blocks(DType dtype);

// As attend(), for F32, and for BF16 of an even size: weights are rounded to BF16 there, as by ATen. Blocks of keys that a block of queries
// does not see are not read.
void attend_by_blocks(const Queries& queries);

} // namespace torch_xla::cpu
