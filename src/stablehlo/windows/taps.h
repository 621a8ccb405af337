// Taps: linear maps along one dim, where each result element is a weighted sum of few elements. Interpolation, padding and adaptive
// averages are such maps; their gradients are the transposed maps.
#pragma once

#include "stablehlo/hlo.h"

namespace torch_xla::stablehlo {

struct Taps {
  int64_t in; // extents
  int64_t out;
  int64_t count; // operand elements for each result element
  std::vector<int64_t> index; // [count][out]
  std::vector<double> weight; // [count][out]; empty: 1
};

// `tap(o)` gives for result element o `count` pairs: an element (clamped to the range) and its weight.
using TapRule = std::function<std::vector<std::pair<int64_t, double>>(int64_t o)>;
Taps make_taps(int64_t in, int64_t out, const TapRule& rule);

Hlo apply_taps(Hlo x, size_t dim, const Taps& taps);
// From a gradient of the result to one of x.
Hlo apply_taps_backward(Hlo g, size_t dim, const Taps& taps);

} // namespace torch_xla::stablehlo
