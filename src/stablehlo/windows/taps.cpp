// Gathers by constant indices, with constant weights.
#include "stablehlo/windows/taps.h"

#include "stablehlo/structured.h"

#include <algorithm>

namespace torch_xla::stablehlo {
namespace {

// The weights of one tap, along dim.
Hlo weights(const Hlo& x, size_t dim, const Taps& taps, int64_t tap) {
  auto first = taps.weight.begin() + tap * taps.out;
  std::vector<double> part(first, first + taps.out);
  return x.text().table(part, {x.dtype(), with(Dims(x.rank(), 1), dim, taps.out)});
}

Hlo indices(const Hlo& x, const Taps& taps, int64_t tap) {
  auto first = taps.index.begin() + tap * taps.out;
  return x.text().table(std::vector<int64_t>(first, first + taps.out), {DType::I64, {taps.out}});
}

bool has_weights(const Taps& taps) {
  return std::any_of(taps.weight.begin(), taps.weight.end(), [](double w) { return w != 1; });
}

// Weight 0 means no element: the value in its place, also NaN, is ignored.
Hlo weighted(const Hlo& x, size_t dim, const Taps& taps, int64_t tap) {
  if (!has_weights(taps)) {
    return x;
  }
  Hlo weight = weights(x, dim, taps, tap);
  return select(weight == 0, weight.text().constant(0, weight.type()), x * weight);
}

} // namespace

Taps make_taps(int64_t in, int64_t out, const TapRule& rule) {
  std::vector<std::vector<std::pair<int64_t, double>>> all;
  size_t longest = 1;
  for (int64_t o = 0; o < out; ++o) {
    all.push_back(rule(o));
    longest = std::max(longest, all.back().size());
  }
  Taps taps{in, out, static_cast<int64_t>(longest), {}, {}};
  for (size_t k = 0; k < longest; ++k) {
    for (const auto& own : all) {
      auto [index, weight] = k < own.size() ? own[k] : std::pair<int64_t, double>(0, 0);
      taps.index.push_back(std::clamp<int64_t>(index, 0, in - 1));
      taps.weight.push_back(weight);
    }
  }
  return taps;
}

Hlo apply_taps(Hlo x, size_t dim, const Taps& taps) {
  Hlo sum;
  for (int64_t k = 0; k < taps.count; ++k) {
    Hlo part = weighted(gather(x, {dim}, {indices(x, taps, k)}, dim), dim, taps, k);
    sum = k == 0 ? part : sum + part;
  }
  return sum;
}

Hlo apply_taps_backward(Hlo g, size_t dim, const Taps& taps) {
  Hlo sum = g.text().constant(0, {g.dtype(), with(g.dims(), dim, taps.in)});
  for (int64_t k = 0; k < taps.count; ++k) {
    sum = scatter(sum, {dim}, {indices(g, taps, k)}, weighted(g, dim, taps, k), dim, combine_by("add"));
  }
  return sum;
}

} // namespace torch_xla::stablehlo
