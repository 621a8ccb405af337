// Operations that have attributes or blocks of their own: reductions, windows, products, indexing, sorting, loops.
#pragma once

#include <functional>

#include "stablehlo/hlo.h"

namespace torch_xla::stablehlo {

// ---- Reductions, scans, windows ----

// Combines elements by the named operation; `reduced` dims go away.
Hlo reduce(Hlo x, const char* name, double init, const Dims& reduced);
Hlo reduce_sum(Hlo x, const Dims& reduced);
// Reduces several values at once: `combine` gets the two sides.
using Combine = std::function<Hlos(const Hlos& a, const Hlos& b)>;
Hlos reduce(const Hlos& x, const Hlos& init, const Dims& reduced, const Combine& combine);
// x summed (or by another named operation, with its neutral element) with all before it along a dim. Compilers know this window.
Hlo running(Hlo x, const char* name, double neutral, size_t dim);
// Inclusive, along a dim; `init` are the combination's neutral elements, 0-d. `combine` gets whole values, the earlier ones first.
Hlos scan(Hlos x, const Hlos& init, size_t dim, const Combine& combine);

struct WindowDims {
  Dims size;
  Dims stride;
  Dims low; // padding
  Dims high;
  Dims dilation;
};
Hlos reduce_window(const Hlos& x, const Hlos& init, const WindowDims& window, const Combine& combine);

// ---- Products ----

// Result dims: batch, then a's others, then b's. 16-bit floats are summed in float32.
Hlo dot(Hlo a, Hlo b, const Dims& a_batch, const Dims& b_batch, const Dims& a_contracted, const Dims& b_contracted);

// ---- Indexing ----

// x at coordinates along some of its dims: `coordinates` are integers of equal dims; these dims take the place `at` among x's other dims in
// the result. Out of range coordinates are clamped.
Hlo gather(Hlo x, const std::vector<size_t>& dims, const Hlos& coordinates, size_t at);
// The inverse: combines updates, with the dims of gather's result, into x. Updates out of range are dropped.
Hlo scatter(Hlo x, const std::vector<size_t>& dims, const Hlos& coordinates, Hlo updates, size_t at, const Combine& combine);
Combine combine_by(const char* name);
Hlo extremum(bool largest, const Hlo& a, const Hlo& b); // NaN if one of them is NaN, on every target
Combine combine_extremum(bool largest);
// As reduce() by combine_extremum(), in a form that devices can combine.
Hlo reduce_extremum(bool largest, Hlo x, Hlo init, const Dims& reduced);
Combine combine_replace(); // the update's value

// Stable sort along a dim; `before` gets the two sides of each operand in turn and says whether the first comes first.
Hlos sort(const Hlos& x, size_t dim, const std::function<Hlo(const Hlos& a, const Hlos& b)>& before);

Hlo dynamic_slice(Hlo x, const Hlos& starts, const Dims& sizes);
Hlo dynamic_update_slice(Hlo x, Hlo update, const Hlos& starts);
Hlos while_loop(const Hlos& init, const std::function<Hlo(const Hlos&)>& goes_on, const std::function<Hlos(const Hlos&)>& body);

} // namespace torch_xla::stablehlo
