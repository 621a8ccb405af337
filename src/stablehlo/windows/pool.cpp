// Max and average pools, forward and backward.
#include "ops/rules.h"
#include "stablehlo/call.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

// The window over all dims of x, whose last N are pooled to `out`. Attributes kernel, stride, padding (and dilation).
struct Pool {
  WindowDims window;
  size_t lead; // dims before the pooled ones
};

template <size_t N>
Pool read_pool(const Call& c, const Dims& in, const Dims& out, bool dilated) {
  Pool p{{Dims(in.size(), 1), Dims(in.size(), 1), Dims(in.size(), 0), Dims(in.size(), 0), Dims(in.size(), 1)}, in.size() - N};
  for (size_t i = 0; i < N; ++i) {
    size_t d = p.lead + i;
    p.window.size[d] = pick(c.get_dims(0), i, 1);
    p.window.stride[d] = pick(c.get_dims(1), i, p.window.size[d]);
    p.window.low[d] = pick(c.get_dims(2), i, 0);
    p.window.dilation[d] = dilated ? pick(c.get_dims(3), i, 1) : 1;
    int64_t covered = (out[d] - 1) * p.window.stride[d] + (p.window.size[d] - 1) * p.window.dilation[d] + 1;
    p.window.high[d] = covered - in[d] - p.window.low[d];
  }
  return p;
}

// Negative padding cuts off: reduce_window takes none.
Hlo cut_ends(Hlo x, WindowDims& window) {
  for (size_t d = 0; d < x.rank(); ++d) {
    if (window.high[d] < 0) {
      x = slice_dim(x, d, 0, x.dim(d) + window.high[d]);
      window.high[d] = 0;
    }
  }
  return x;
}

// Row-major element numbers over the dims from `lead` on.
Hlo plane_index(Text& text, const Dims& dims, size_t lead) {
  Dims plane(dims.data() + lead, dims.size() - lead);
  int64_t count = num_elements(plane);
  return broadcast(reshape(iota(text, {count}, 0, index_type(count)), plane), dims);
}

// ---- Max pools ----

// The larger value, NaN before all; of equal ones the first, of NaNs the last.
Hlos larger(const Hlos& a, const Hlos& b) {
  Hlo a_nan = is_nan(a[0]);
  Hlo b_nan = is_nan(b[0]);
  Hlo b_wins = (b[0] > a[0]) | (b_nan & !a_nan) | ((a[0] == b[0]) & (b[1] < a[1])) | (a_nan & b_nan & (b[1] > a[1]));
  return {select(b_wins, b[0], a[0]), select(b_wins, b[1], a[1])};
}

// The element that each window has at one place.
Hlo tap(const Hlo& padded, const WindowDims& window, const Dims& out, Dims place) {
  Dims limits;
  for (size_t d = 0; d < place.size(); ++d) {
    place[d] *= window.dilation[d];
    limits.push_back(place[d] + (out[d] - 1) * window.stride[d] + 1);
  }
  return slice(padded, place, limits, window.stride);
}

// The best element of each window with its position: the windows' elements at each place, one place after the other. Some compilers refuse
// windows of pairs.
Hlos best_of_taps(Hlo x, Hlo index, const Hlos& none, const WindowDims& window, const Dims& out) {
  Dims interior(x.rank(), 0);
  x = pad(x, none[0], window.low, window.high, interior);
  index = pad(index, none[1], window.low, window.high, interior);
  Hlos best;
  for (int64_t number = 0; number < num_elements(window.size); ++number) {
    Dims place = window.size;
    int64_t rest = number;
    for (size_t d = place.size(); d-- > 0; rest /= window.size[d]) {
      place[d] = rest % window.size[d];
    }
    Hlos element{tap(x, window, out, place), tap(index, window, out, place)};
    best = best.empty() ? element : larger(best, element);
  }
  return best;
}

constexpr int64_t kMostTaps = 32; // larger windows would make long texts

template <size_t N>
void write_max_pool(Call& c) {
  Hlo x = c[0];
  Pool p = read_pool<N>(c, x.dims(), c.result_type(0).dims, true);
  Hlo least = lowest(c.text(), x.dtype());
  if (!c.is_read(1)) {
    x = cut_ends(x, p.window);
    c.set(0, reduce_window({x}, {least}, p.window, combine_extremum(true))[0]);
    return;
  }
  Hlo index = plane_index(c.text(), x.dims(), p.lead);
  WindowDims window = p.window;
  index = cut_ends(index, window);
  x = cut_ends(x, p.window);
  Hlo none = highest(c.text(), index.dtype());
  const Hlos init{least, none};
  const bool by_taps = num_elements(p.window.size) <= kMostTaps;
  Hlos results =
      by_taps ? best_of_taps(x, index, init, p.window, c.result_type(0).dims) : reduce_window({x, index}, init, p.window, larger);
  c.set(0, results[0]);
  c.set(1, results[1]);
}

// Operands gradient, input and, last, the indices into each plane.
template <size_t N>
void write_max_pool_backward(Call& c) {
  Hlo g = c.computed(0);
  Hlo index = c[c.size() - 1];
  Dims in = c[1].dims();
  size_t lead = in.size() - N;
  int64_t planes = num_elements(Dims(in.data(), lead));
  int64_t plane = num_elements(in) / planes;
  Dims rows{planes, g.type().numel() / planes};
  index = reshape(index, rows);
  Hlo base = c.text().constant(0, {g.dtype(), {planes, plane}});
  Hlo row = iota(c.text(), rows, 0, index.dtype());
  c.set(0, scatter(base, {0, 1}, {row, index}, reshape(g, rows), 0, combine_by("add")));
}

// ---- Average pools: attributes ceil mode, count_include_pad, divisor_override after the window ----

// The number of elements that each window divides by, of the pooled dims only: at::native's rule.
template <size_t N>
Hlo divisors(Call& c, const Pool& p, const Dims& in, const Dims& out, DType dtype) {
  Dims ones(out.size(), 1);
  if (!c.is_none(5)) {
    return c.text().constant(c.get_double(5), {dtype, ones});
  }
  Hlo product = c.text().constant(1, {dtype, ones});
  bool counts_padding = c.get_bool(4, true);
  for (size_t d = p.lead; d < in.size(); ++d) {
    std::vector<double> counts;
    for (int64_t o = 0; o < out[d]; ++o) {
      int64_t begin = o * p.window.stride[d] - p.window.low[d];
      int64_t end = std::min(begin + p.window.size[d], in[d] + p.window.low[d]);
      int64_t inside = std::min(end, in[d]) - std::max<int64_t>(begin, 0);
      counts.push_back(static_cast<double>(counts_padding ? end - begin : inside));
    }
    product = product * c.text().table(counts, {dtype, with(ones, d, out[d])});
  }
  return product;
}

template <size_t N>
void write_avg_pool(Call& c) {
  Hlo x = c.computed(0);
  Dims in = x.dims();
  Dims out = c.result_type(0).dims;
  Pool p = read_pool<N>(c, in, out, false);
  Hlo count = divisors<N>(c, p, in, out, x.dtype());
  x = cut_ends(x, p.window);
  Hlo sum = reduce_window({x}, {c.text().constant(0, {x.dtype(), {}})}, p.window, combine_by("add"))[0];
  c.set(0, sum / count);
}

// Each window's share goes to its elements: the gradient is spread by the strides and summed in windows.
template <size_t N>
void write_avg_pool_backward(Call& c) {
  Hlo g = c.computed(0);
  Dims in = c[1].dims();
  Pool p = read_pool<N>(c, in, g.dims(), false);
  g = g / divisors<N>(c, p, in, g.dims(), g.dtype());
  Dims low(in.size(), 0);
  Dims high = low;
  Dims interior = low;
  for (size_t d = p.lead; d < in.size(); ++d) {
    low[d] = p.window.size[d] - 1 - p.window.low[d];
    interior[d] = p.window.stride[d] - 1;
    int64_t spread = (g.dim(d) - 1) * p.window.stride[d] + 1;
    high[d] = in[d] + p.window.size[d] - 1 - spread - low[d];
  }
  Hlo zero = c.text().constant(0, {g.dtype(), {}});
  Hlo spread = pad(g, zero, low, high, interior);
  Dims ones(in.size(), 1);
  Dims none(in.size(), 0);
  c.set(0, reduce_window({spread}, {zero}, {p.window.size, ones, none, none, ones}, combine_by("add"))[0]);
}

// ---- Adaptive max pools: the windows differ, so each result element reads its own ----

struct Reach {
  std::vector<int64_t> index; // [out, longest window]
  std::vector<int64_t> inside; // whether the index is in the window
  int64_t longest = 0;
};

Reach adaptive_reach(int64_t in, int64_t out) {
  Reach reach;
  auto begin = [&](int64_t o) { return o * in / out; };
  auto end = [&](int64_t o) { return ((o + 1) * in + out - 1) / out; };
  for (int64_t o = 0; o < out; ++o) {
    reach.longest = std::max(reach.longest, end(o) - begin(o));
  }
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t k = 0; k < reach.longest; ++k) {
      reach.inside.push_back(begin(o) + k < end(o));
      reach.index.push_back(std::min(begin(o) + k, in - 1));
    }
  }
  return reach;
}

// The best elements along a dim, which goes.
Hlos best_along(const Hlos& x, const Hlos& none, size_t dim) {
  if (x[0].dim(dim) > kMostTaps) {
    return reduce(x, none, {static_cast<int64_t>(dim)}, larger);
  }
  Hlos best;
  for (int64_t i = 0; i < x[0].dim(dim); ++i) {
    Hlos element;
    for (const Hlo& part : x) {
      element.push_back(reshape(slice_dim(part, dim, i, i + 1), without(part.dims(), dim)));
    }
    best = best.empty() ? element : larger(best, element);
  }
  return best;
}

// One dim after the other, as a window is a product of intervals; ties still go to the first element in row-major order.
template <size_t N>
void write_adaptive_max_pool(Call& c) {
  Hlo x = c[0];
  Dims out = c.result_type(0).dims;
  Hlo index = plane_index(c.text(), x.dims(), x.rank() - N);
  Hlo least = lowest(c.text(), x.dtype());
  Hlo none = highest(c.text(), index.dtype());
  for (size_t d = out.size() - N; d < out.size(); ++d) {
    Reach reach = adaptive_reach(x.dim(d), out[d]);
    Dims table{out[d], reach.longest};
    Hlo where = c.text().table(reach.index, {DType::I64, table});
    Dims shape(out.size() + 1, 1);
    shape[d] = table[0];
    shape[d + 1] = table[1];
    Hlo inside = reshape(c.text().table(reach.inside, {DType::Bool, table}), shape);
    Hlo values = select(inside, gather(x, {d}, {where}, d), least);
    Hlo indices = select(inside, gather(index, {d}, {where}, d), none);
    Hlos best = best_along({values, indices}, {least, none}, d + 1);
    x = best[0];
    index = best[1];
  }
  c.set(0, x);
  c.set(1, index);
}

constexpr Writer kWriters[] = {
    {"aten::max_pool2d_with_indices", write_max_pool<2>},
    {"aten::max_pool3d_with_indices", write_max_pool<3>},
    {"aten::max_pool2d_with_indices_backward", write_max_pool_backward<2>},
    {"aten::max_pool3d_with_indices_backward", write_max_pool_backward<3>},
    {"aten::adaptive_max_pool2d", write_adaptive_max_pool<2>},
    {"aten::adaptive_max_pool3d", write_adaptive_max_pool<3>},
    {"aten::adaptive_max_pool2d_backward", write_max_pool_backward<2>},
    {"aten::adaptive_max_pool3d_backward", write_max_pool_backward<3>},
    {"aten::avg_pool2d", write_avg_pool<2>},
    {"aten::avg_pool3d", write_avg_pool<3>},
    {"aten::avg_pool2d_backward", write_avg_pool_backward<2>},
    {"aten::avg_pool3d_backward", write_avg_pool_backward<3>},
};

} // namespace

std::span<const Writer> pool_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
