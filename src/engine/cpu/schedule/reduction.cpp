// Counts the units of work of a reduction: its rows, or the blocks of its columns.
#include "engine/cpu/schedule/reduction.h"

#include <algorithm>

#include "engine/cpu/cost.h"
#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {
namespace {

struct Extent {
  int64_t units; // that threads can share
  int64_t reduced; // elements of each result
  bool columns;
};

Extent measure(const Dims& dims, const Dims& strides, const Dims& over) {
  int64_t reduced = 1;
  for (int64_t d : over) {
    reduced *= dims[d];
  }
  const int64_t kept = reduced ? num_elements(dims) / reduced : 0;
  const bool columns = reduces_columns(dims, strides, over);
  return {columns ? (kept + kColumnBlock - 1) / kColumnBlock : kept, reduced, columns};
}

Dims find_last(const Dims& dims, const Dims& over, const Extent& e) {
  Dims last;
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < over.size() && rows < kEnoughRows; ++i) {
    last.push_back(over[i]);
    rows *= dims[over[i]];
  }
  const bool fits = rows >= kFewestRows && e.reduced / rows >= (e.columns ? kShortestColumn : kShortestRow);
  return fits ? last : Dims();
}

int64_t find_pieces(int64_t count) {
  int64_t pieces = kPieces;
  while (count % pieces) {
    pieces /= 2;
  }
  return pieces < kFewestRows ? 0 : pieces;
}

} // namespace

bool reduces_columns(const Dims& dims, const Dims& strides, const Dims& over) {
  int innermost = -1;
  for (size_t d = 0; d < dims.size(); ++d) {
    bool moves = dims[d] > 1 && strides[d] > 0;
    if (moves && (innermost < 0 || strides[d] <= strides[innermost])) {
      innermost = static_cast<int>(d);
    }
  }
  return innermost >= 0 && std::find(over.begin(), over.end(), innermost) == over.end();
}

ReductionCut cut_reduction(const Dims& dims, const Dims& strides, const Dims& over) {
  const int64_t count = num_elements(dims);
  const Extent e = measure(dims, strides, over);
  if (e.units >= kManyResults || count <= kLargeReduction * std::max<int64_t>(e.units, 1)) {
    return {};
  }
  ReductionCut cut{.last = find_last(dims, over, e)};
  if (cut.last.empty() && e.reduced == count) {
    cut.pieces = find_pieces(count);
  }
  return cut;
}

} // namespace torch_xla::cpu
