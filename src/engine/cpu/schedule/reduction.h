// The direction of a reduction through memory, and its cut into two levels for enough parallel work.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace torch_xla::cpu {

// Whether it keeps the innermost dimension in memory: then neighbours in memory belong to different results, and vectors run over the
// results ("columns"), not over the reduced elements.
bool reduces_columns(const Dims& dims, const Dims& strides, const Dims& over);

// The cut of a reduction into two levels; no cut if all members are empty.
struct ReductionCut {
  // The reduced dims of the second level: the leading ones, as the others lie together in memory.
  Dims last;
  // If no dims make rows for threads, but all of the memory or only a first dim is reduced: the operand's dims as pieces of equal size. Dim
  // 1 is reduced first, then `rest`: the pieces, and adjacent rows that let narrow columns fill vectors.
  Dims pieces;
  Dims rest;

  bool has_rows() const { // adjacent rows in a piece
    return rest.size() > 1;
  }
  Dims row_dims() const { // dims of one piece's row, broadcast to the pieces
    Dims dims = pieces;
    dims[0] = dims[1] = 1;
    return dims;
  }
};

// `over` is sorted.
ReductionCut cut_reduction(const Dims& dims, const Dims& strides, const Dims& over);

} // namespace torch_xla::cpu
