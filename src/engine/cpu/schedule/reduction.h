// Which way a reduction runs through memory, and how it is cut where that leaves too little for threads to share.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace torch_xla::cpu {

// Whether it leaves the dimension that is innermost in memory: then neighbours in memory belong to different results, so that vectors run
// over the results ("columns") and not over what is reduced.
bool reduces_columns(const Dims& dims, const Dims& strides, const Dims& over);

// How a reduction is cut in two levels; as one where all members are empty.
struct ReductionCut {
  // Of the dims that are reduced: those of the second level. The first ones, as the others lie together in memory.
  Dims last;
  // Where no dims make rows for threads, but all of the memory is reduced, or only a first dim: the dims of the operand in pieces of equal
  // size. Its dim 1 is reduced first, then `rest`: the pieces, and rows that lie beside each other, with which narrow columns fill vectors.
  Dims pieces;
  Dims rest;

  bool has_rows() const { // beside each other
    return rest.size() > 1;
  }
  Dims row_dims() const { // of those of one place in one piece, broadcast to the pieces
    Dims dims = pieces;
    dims[0] = dims[1] = 1;
    return dims;
  }
};

// `over` is sorted.
ReductionCut cut_reduction(const Dims& dims, const Dims& strides, const Dims& over);

} // namespace torch_xla::cpu
