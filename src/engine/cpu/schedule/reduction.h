// Which way a reduction runs through memory, and how it is cut where that leaves too little for threads to share.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace torch_xla::cpu {

// Whether it leaves the dimension that is innermost in memory: then neighbours in memory belong to different results, so that vectors run
// over the results ("columns") and not over what is reduced.
bool reduces_columns(const Dims& dims, const Dims& strides, const Dims& over);

// How a reduction is cut in two levels; as one where both members are empty.
struct ReductionCut {
  // Of the dims that are reduced: those of the second level. The first ones, as the others lie together in memory.
  Dims last;
  // Where all of the memory is reduced and no dims make rows for threads: the pieces of equal size that each are summed first.
  int64_t pieces = 0;
};

// `over` is sorted.
ReductionCut cut_reduction(const Dims& dims, const Dims& strides, const Dims& over);

} // namespace torch_xla::cpu
