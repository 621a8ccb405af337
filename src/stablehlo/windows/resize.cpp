// Interpolation, border padding, adaptive average pools, columns and windows, forward and backward: taps along each dim.
#include <cmath>

#include "ops/rules.h"
#include "stablehlo/call.h"
#include "stablehlo/structured.h"
#include "stablehlo/windows/taps.h"

namespace torch_xla::stablehlo {
namespace {

using TapList = std::vector<std::pair<int64_t, double>>;

// ---- Interpolation ----

enum class Mode { kNearest, kNearestExact, kLinear, kCubic };

constexpr bool has_align_corners(Mode mode) {
  return mode == Mode::kLinear || mode == Mode::kCubic;
}

struct Resize {
  int64_t in;
  int64_t out;
  double scale; // given, 0: none
  bool align_corners;
};

// Input elements per output element. Real: the type of positions in ATen's kernels: float, except double for images of doubles (nearest
// element: always float).
template <typename Real>
Real step(const Resize& r) {
  if (r.align_corners) {
    return r.out > 1 ? static_cast<Real>(r.in - 1) / static_cast<Real>(r.out - 1) : Real(0);
  }
  return r.scale > 0 ? static_cast<Real>(1.0 / r.scale) : static_cast<Real>(r.in) / static_cast<Real>(r.out);
}

TapList nearest(const Resize& r, bool exact, int64_t o) {
  auto scale = step<float>(r);
  float at = exact ? (static_cast<float>(o) + 0.5f) * scale : static_cast<float>(o) * scale;
  return {{std::min(static_cast<int64_t>(std::floor(at)), r.in - 1), 1.0}};
}

template <typename Real>
Real source(const Resize& r, int64_t o) {
  Real scale = step<Real>(r);
  return r.align_corners ? scale * static_cast<Real>(o) : scale * (static_cast<Real>(o) + Real(0.5)) - Real(0.5);
}

template <typename Real>
TapList linear(const Resize& r, int64_t o) {
  if (r.in == r.out) {
    return {{o, 1.0}};
  }
  Real at = std::max(source<Real>(r, o), Real(0));
  auto first = std::min(static_cast<int64_t>(at), r.in - 1);
  double part = std::clamp(at - static_cast<Real>(first), Real(0), Real(1));
  return {{first, 1 - part}, {std::min(first + 1, r.in - 1), part}};
}

// Keys' kernel with a = -0.75.
double cubic_weight(double x) {
  constexpr double a = -0.75;
  x = std::fabs(x);
  return x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

template <typename Real>
TapList cubic(const Resize& r, int64_t o) {
  Real at = source<Real>(r, o);
  Real floor = std::floor(at);
  double part = std::clamp(at - floor, Real(0), Real(1));
  TapList taps;
  for (int64_t k = -1; k <= 2; ++k) {
    taps.push_back({std::clamp<int64_t>(static_cast<int64_t>(floor) + k, 0, r.in - 1), cubic_weight(part - static_cast<double>(k))});
  }
  return taps;
}

template <typename Real>
Taps resize_taps(Mode mode, const Resize& r) {
  return make_taps(r.in, r.out, [&](int64_t o) {
    switch (mode) {
      case Mode::kLinear:
        return linear<Real>(r, o);
      case Mode::kCubic:
        return cubic<Real>(r, o);
      default:
        return nearest(r, mode == Mode::kNearestExact, o);
    }
  });
}

// Attributes output size, for the backward rows input size, align_corners where the mode has it, and a scale per dim.
template <Mode M, bool Backward>
void write_resize(Call& c) {
  const Dims& in = Backward ? c.result_type(0).dims : c[0].dims();
  const Dims& out = Backward ? c[0].dims() : c.result_type(0).dims;
  size_t flag = Backward ? 2 : 1;
  size_t scales = flag + has_align_corners(M);
  Hlo x = c.computed(0);
  auto* taps_of = x.dtype() == DType::F64 ? resize_taps<double> : resize_taps<float>;
  for (size_t d = 2; d < in.size(); ++d) {
    size_t scale = scales + d - 2;
    Resize r{in[d], out[d], scale < c.num_attrs() ? c.get_double(scale, 0) : 0, has_align_corners(M) && c.get_bool(flag)};
    Taps taps = taps_of(M, r);
    x = Backward ? apply_taps_backward(x, d, taps) : apply_taps(x, d, taps);
  }
  c.set(0, x);
}

// ---- Padding: attribute pad, from the last dim on, before and after ----

int64_t reflected(int64_t i, int64_t n) {
  int64_t from_start = i < 0 ? -i : i;
  return from_start >= n ? 2 * (n - 1) - from_start : from_start;
}

template <bool Reflects, bool Backward>
void write_border_pad(Call& c) {
  Dims list = c.get_dims(0);
  Dims in = Backward ? c.result_type(0).dims : c[0].dims();
  Hlo x = c.computed(0);
  for (size_t i = 0; i < list.size() / 2; ++i) {
    size_t d = in.size() - 1 - i;
    int64_t before = list[2 * i];
    Taps taps = make_taps(in[d], in[d] + before + list[2 * i + 1], [&](int64_t o) {
      int64_t at = o - before;
      return TapList{{Reflects ? reflected(at, in[d]) : std::clamp<int64_t>(at, 0, in[d] - 1), 1.0}};
    });
    x = Backward ? apply_taps_backward(x, d, taps) : apply_taps(x, d, taps);
  }
  c.set(0, x);
}

// ---- Adaptive average pools ----

Taps average_taps(int64_t in, int64_t out) {
  return make_taps(in, out, [&](int64_t o) {
    int64_t begin = o * in / out;
    int64_t end = ((o + 1) * in + out - 1) / out;
    TapList taps;
    for (int64_t i = begin; i < end; ++i) {
      taps.push_back({i, 1.0 / static_cast<double>(end - begin)});
    }
    return taps;
  });
}

template <size_t N, bool Backward>
void write_adaptive_average(Call& c) {
  Dims in = Backward ? c.result_type(0).dims : c[0].dims();
  Dims out = Backward ? c[0].dims() : c.result_type(0).dims;
  Hlo x = c.computed(0);
  for (size_t d = in.size() - N; d < in.size(); ++d) {
    if (!Backward && out[d] == 1) { // the whole dim
      x = reshape(reduce_sum(x, {static_cast<int64_t>(d)}), with(x.dims(), d, 1)) / static_cast<double>(in[d]);
    } else if (Backward && out[d] == 1) {
      x = broadcast(x / static_cast<double>(in[d]), with(x.dims(), d, in[d]));
    } else {
      x = Backward ? apply_taps_backward(x, d, average_taps(in[d], out[d])) : apply_taps(x, d, average_taps(in[d], out[d]));
    }
  }
  c.set(0, x);
}

// ---- Columns: attributes kernel, dilation, padding, stride; for col2im after the output size ----

struct Columns {
  int64_t kernel;
  int64_t dilation;
  int64_t padding;
  int64_t stride;
  int64_t blocks;
};

Columns read_columns(const Call& c, size_t first, size_t i, int64_t in) {
  Columns w{
      pick(c.get_dims(first), i, 1),
      pick(c.get_dims(first + 1), i, 1),
      pick(c.get_dims(first + 2), i, 0),
      pick(c.get_dims(first + 3), i, 1),
      0};
  w.blocks = (in + 2 * w.padding - w.dilation * (w.kernel - 1) - 1) / w.stride + 1;
  return w;
}

// Element of the padded dim for kernel position k and block b: [kernel, blocks].
Hlo column_index(Text& text, const Columns& w) {
  std::vector<int64_t> table;
  for (int64_t k = 0; k < w.kernel; ++k) {
    for (int64_t b = 0; b < w.blocks; ++b) {
      table.push_back(k * w.dilation + b * w.stride);
    }
  }
  return text.table(table, {DType::I64, {w.kernel, w.blocks}});
}

void write_im2col(Call& c) {
  Hlo x = c[0];
  size_t dim = 2;
  for (size_t i = 0; i < 2; ++i, dim += 2) {
    Columns w = read_columns(c, 0, i, x.dim(dim));
    x = pad_dim(x, c.text().constant(0, {x.dtype(), {}}), dim, w.padding, w.padding);
    x = gather(x, {dim}, {column_index(c.text(), w)}, dim);
  }
  c.set(0, transpose(x, {0, 1, 2, 4, 3, 5})); // [N, C, kernel h, kernel w, blocks h, blocks w]
}

void write_col2im(Call& c) {
  Dims out = c.result_type(0).dims;
  Columns h = read_columns(c, 1, 0, out[2]);
  Columns w = read_columns(c, 1, 1, out[3]);
  Hlo x = reshape(c.computed(0), {out[0], out[1], h.kernel, w.kernel, h.blocks, w.blocks});
  x = transpose(x, {0, 1, 2, 4, 3, 5});
  Dims padded{out[0], out[1], h.kernel, h.blocks, out[3] + 2 * w.padding};
  x = scatter(c.text().constant(0, {x.dtype(), padded}), {4}, {column_index(c.text(), w)}, x, 4, combine_by("add"));
  padded = {out[0], out[1], out[2] + 2 * h.padding, padded[4]};
  x = scatter(c.text().constant(0, {x.dtype(), padded}), {2}, {column_index(c.text(), h)}, x, 2, combine_by("add"));
  x = slice_dim(x, 2, h.padding, h.padding + out[2]);
  c.set(0, slice_dim(x, 3, w.padding, w.padding + out[3]));
}

// Operand gradient [..., windows, ..., size]; attributes input sizes, dim, size, step.
void write_unfold_backward(Call& c) {
  Hlo g = c.computed(0);
  Dims in = c.result_type(0).dims;
  size_t dim = c.get_dim(1, in.size());
  if (in.empty()) {
    c.set(0, reshape(g, {}));
    return;
  }
  Columns w{c.get_int(2), 1, 0, c.get_int(3), g.dim(dim)};
  g = move_dim(g, g.rank() - 1, dim); // [..., size, windows, ...]
  c.set(0, scatter(c.text().constant(0, {g.dtype(), in}), {dim}, {column_index(c.text(), w)}, g, dim, combine_by("add")));
}

#define RESIZE(NAME, MODE)                              \
  {"aten::" NAME, write_resize<MODE, false>}, {         \
    "aten::" NAME "_backward", write_resize<MODE, true> \
  }
#define PAD(NAME, REFLECTS)                                     \
  {"aten::" NAME, write_border_pad<REFLECTS, false>}, {         \
    "aten::" NAME "_backward", write_border_pad<REFLECTS, true> \
  }

constexpr Writer kWriters[] = {
    RESIZE("upsample_nearest1d", Mode::kNearest),
    RESIZE("upsample_nearest2d", Mode::kNearest),
    RESIZE("upsample_nearest3d", Mode::kNearest),
    RESIZE("_upsample_nearest_exact1d", Mode::kNearestExact),
    RESIZE("_upsample_nearest_exact2d", Mode::kNearestExact),
    RESIZE("_upsample_nearest_exact3d", Mode::kNearestExact),
    RESIZE("upsample_linear1d", Mode::kLinear),
    RESIZE("upsample_bilinear2d", Mode::kLinear),
    RESIZE("upsample_trilinear3d", Mode::kLinear),
    RESIZE("upsample_bicubic2d", Mode::kCubic),
    PAD("reflection_pad1d", true),
    PAD("reflection_pad2d", true),
    PAD("reflection_pad3d", true),
    PAD("replication_pad1d", false),
    PAD("replication_pad2d", false),
    PAD("replication_pad3d", false),
    {"aten::_adaptive_avg_pool2d", write_adaptive_average<2, false>},
    {"aten::_adaptive_avg_pool3d", write_adaptive_average<3, false>},
    {"aten::_adaptive_avg_pool2d_backward", write_adaptive_average<2, true>},
    {"aten::_adaptive_avg_pool3d_backward", write_adaptive_average<3, true>},
    {"aten::im2col", write_im2col},
    {"aten::col2im", write_col2im},
    {"aten::unfold_backward", write_unfold_backward},
};

} // namespace

std::span<const Writer> resize_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
