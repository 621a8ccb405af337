// Which way a reduction runs through memory, and how it is cut where that leaves too little for threads to share.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace torch_xla::cpu {

// Whether it leaves the dimension that is innermost in memory: then neighbours in memory belong to different results, so that vectors run
// over the results ("columns") and not over what is reduced. `reduced`: a set of bits by dimension.
bool reduces_columns(const Dims& dims, const Dims& strides, uint32_t reduced);

// The dims of `over`, which is sorted, that a second reduction is to run over, of what the first one leaves: the first ones, as the others
// lie together in memory. Empty: all are reduced at once.
Dims find_second_level(const Dims& dims, const Dims& strides, const Dims& over);

// Pieces of equal size to cut dense memory into, each summed by itself, where all of it is reduced and no dims make such rows; 0: none.
int64_t find_pieces(const Dims& dims, const Dims& over);

} // namespace torch_xla::cpu
