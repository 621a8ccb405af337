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

// The first divisor on the way from one number to another, or 0.
int64_t find_divisor(int64_t extent, int64_t from, int64_t to) {
  const int64_t step = from <= to ? 1 : -1;
  for (int64_t divisor = from; divisor != to + step; divisor += step) {
    if (extent % divisor == 0) {
      return divisor;
    }
  }
  return 0;
}

// Number of adjacent rows with this many columns that fill vectors together.
int64_t find_rows(int64_t extent, int64_t columns) {
  const int64_t enough = (kColumnBlock + columns - 1) / columns;
  const int64_t rows = find_divisor(extent, enough, 2 * enough);
  return rows ? rows : find_divisor(extent, enough, 1);
}

// The cut of a first dim with this extent; `columns` are the extents after it.
ReductionCut cut_in_pieces(int64_t extent, const Dims& columns) {
  const int64_t rows = columns.empty() ? 1 : find_rows(extent, num_elements(columns));
  const int64_t pieces = find_divisor(extent / rows, std::clamp<int64_t>(extent / rows / kShortestColumn, 1, kPieces), kFewestRows);
  if (pieces < kFewestRows) {
    return {};
  }
  ReductionCut cut{.last = {}, .pieces = {pieces, extent / rows / pieces}, .rest = {0}};
  if (rows > 1) {
    cut.pieces.push_back(rows);
    cut.rest.push_back(2);
  }
  for (int64_t columns_of_dim : columns) {
    cut.pieces.push_back(columns_of_dim);
  }
  return cut;
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
  if (Dims last = find_last(dims, over, e); !last.empty()) {
    return {.last = last, .pieces = {}, .rest = {}};
  }
  if (e.reduced == count) {
    return cut_in_pieces(count, {});
  }
  const auto first = static_cast<size_t>(over[0]);
  const bool is_first = over.size() == 1 && std::all_of(dims.begin(), dims.begin() + first, [](int64_t extent) { return extent == 1; });
  return is_first && e.columns ? cut_in_pieces(dims[first], Dims(dims.data() + first + 1, dims.size() - first - 1)) : ReductionCut();
}

} // namespace torch_xla::cpu
