// Convolutions, pools, interpolation and padding, forward and backward: calls of ATen's kernels. Only the extents are told here, not the
// memory format.
#include "core/errors.h"
#include "ops/math.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// ---- Convolution: operands input, weight, bias; attributes stride, padding, dilation, transposed, output padding, groups ----

struct Window {
  int64_t kernel;
  int64_t stride;
  int64_t padding;
  int64_t dilation;
};

int64_t covered(const Window& w) {
  return w.dilation * (w.kernel - 1) + 1;
}

int64_t conv_extent(int64_t in, const Window& w) {
  XLA_CHECK(
      in + 2 * w.padding >= covered(w),
      "Calculated padded input size per channel: (",
      in + 2 * w.padding,
      "). Kernel size: (",
      covered(w),
      "). Kernel size can't be greater than actual input size");
  return (in + 2 * w.padding - covered(w)) / w.stride + 1;
}

int64_t transposed_extent(int64_t in, const Window& w, int64_t output_padding) {
  return (in - 1) * w.stride - 2 * w.padding + covered(w) + output_padding;
}

void check_conv(const InferContext& c, bool transposed, int64_t groups) {
  Dims in = c.operand(0).dims;
  Dims weight = c.operand(1).dims;
  if (in.size() < 3 || in.size() != weight.size() || groups <= 0) {
    fall_back("a convolution of these ranks");
  }
  same_dtype(c, 0, 1);
  int64_t channels = transposed ? weight[0] : weight[1] * groups;
  XLA_CHECK(
      in[1] == channels,
      "Given groups=",
      groups,
      transposed ? ", transposed=1" : "",
      ", weight of size ",
      dims_text(weight),
      ", expected input",
      dims_text(in),
      " to have ",
      channels,
      " channels, but got ",
      in[1],
      " channels instead");
}

void infer_convolution(InferContext& c) {
  bool transposed = c.get_bool(3);
  int64_t groups = c.get_int(5);
  check_conv(c, transposed, groups);
  Dims in = c.operand(0).dims;
  Dims weight = c.operand(1).dims;
  Dims out{in[0], transposed ? weight[1] * groups : weight[0]};
  for (size_t i = 2; i < in.size(); ++i) {
    Window w{weight[i], pick(c.get_dims(0), i - 2, 1), pick(c.get_dims(1), i - 2, 0), pick(c.get_dims(2), i - 2, 1)};
    out.push_back(transposed ? transposed_extent(in[i], w, pick(c.get_dims(4), i - 2, 0)) : conv_extent(in[i], w));
  }
  c.add_result(c.operand(0).dtype, out);
}

// Operands gradient, input, weight; attributes bias sizes, stride, ..., groups, output mask.
void infer_convolution_backward(InferContext& c) {
  for (size_t i = 0; i < 3; ++i) {
    if (!get_flag(c, 7, i)) {
      c.add_undefined();
    } else if (i < 2) {
      c.add_result(c.operand(i + 1).dtype, c.operand(i + 1).dims);
    } else {
      c.add_result(c.operand(2).dtype, {c.operand(0).dims[1]});
    }
  }
}

// ---- Pools ----

// at::native::pooling_output_shape
int64_t pool_extent(int64_t in, const Window& w, bool ceil) {
  int64_t span = in + 2 * w.padding - covered(w) + (ceil ? w.stride - 1 : 0);
  if (w.stride <= 0 || w.kernel <= 0 || w.padding < 0 || w.padding > covered(w) / 2 || span < 0) {
    fall_back("a pool with this window");
  }
  int64_t out = span / w.stride + 1;
  return ceil && (out - 1) * w.stride >= in + w.padding ? out - 1 : out;
}

// Extents of a pool of rank N with the attributes kernel, stride, padding, and dilation where `Dilated`, then ceil_mode.
template <size_t N, bool Dilated>
Dims pool_dims(const InferContext& c) {
  Dims out = c.operand(0).dims;
  if (out.size() != N + 1 && out.size() != N + 2) {
    fall_back("a pool of this rank");
  }
  size_t lead = out.size() - N;
  for (size_t i = 0; i < N; ++i) {
    int64_t kernel = pick(c.get_dims(0), i, 1);
    Window w{kernel, pick(c.get_dims(1), i, kernel), pick(c.get_dims(2), i, 0), Dilated ? pick(c.get_dims(3), i, 1) : 1};
    out[lead + i] = pool_extent(out[lead + i], w, c.get_bool(Dilated ? 4 : 3));
  }
  return out;
}

template <size_t N>
void infer_max_pool(InferContext& c) {
  Dims dims = pool_dims<N, true>(c);
  c.add_result(c.operand(0).dtype, dims);
  c.add_result(DType::I64, dims);
}

template <size_t N>
void infer_avg_pool(InferContext& c) {
  Dims dims = pool_dims<N, false>(c);
  c.add_result(c.operand(0).dtype, dims);
}

// The last N extents replaced by an attribute.
template <size_t N>
Dims resized(const InferContext& c, size_t attr) {
  Dims dims = c.operand(0).dims;
  Dims to = c.get_dims(attr);
  if ((dims.size() != N + 1 && dims.size() != N + 2) || (to.size() != N && to.size() != 1)) {
    fall_back("a pool of this rank");
  }
  for (size_t i = 0; i < N; ++i) {
    dims[dims.size() - N + i] = pick(to, i, 0);
  }
  return dims;
}

template <size_t N>
void infer_adaptive(InferContext& c) {
  c.add_result(c.operand(0).dtype, resized<N>(c, 0));
}

template <size_t N>
void infer_adaptive_max(InferContext& c) {
  infer_adaptive<N>(c);
  c.add_result(DType::I64, resized<N>(c, 0));
}

// ---- Interpolation ----

template <size_t N>
void infer_upsample(InferContext& c) {
  if (c.operand(0).dims.size() != N + 2) {
    fall_back("interpolation of this rank");
  }
  c.add_result(c.operand(0).dtype, resized<N>(c, 0));
}

// Attributes output size, input size.
void infer_upsample_backward(InferContext& c) {
  c.add_result(c.operand(0).dtype, c.get_dims(1));
}

// ---- Padding: attribute pad, from the last dim on, before and after ----

Dims padded_dims(const InferContext& c) {
  Dims dims = c.operand(0).dims;
  Dims pad = c.get_dims(0);
  if (pad.size() % 2 || pad.size() > 2 * dims.size()) {
    fall_back("padding of this rank");
  }
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    int64_t& d = dims[dims.size() - 1 - i];
    d += pad[2 * i] + pad[2 * i + 1];
    if (d < 0) {
      fall_back("padding to a negative size");
    }
  }
  return dims;
}

void infer_pad(InferContext& c) {
  c.add_result(c.operand(0).dtype, padded_dims(c));
}

// The part of the source that is kept, and where it goes.
struct Placement {
  Dims kept;
  int64_t from = 0;
  int64_t to = 0;
};

Placement place(const Dims& source, const Dims& target, const Dims& pad) {
  Placement p{source};
  Dims source_strides = contiguous_strides(source);
  Dims target_strides = contiguous_strides(target);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    size_t d = source.size() - 1 - i;
    int64_t before = pad[2 * i];
    p.kept[d] += std::min<int64_t>(before, 0) + std::min<int64_t>(pad[2 * i + 1], 0);
    p.from += std::max<int64_t>(-before, 0) * source_strides[d];
    p.to += std::max<int64_t>(before, 0) * target_strides[d];
  }
  return p;
}

void expand_pad(ExpandContext& c) {
  Dims source = c.operand(0).dims;
  Dims target = c.result_type(0).dims;
  Placement p = place(source, target, c.get_dims(0));
  ValueId fill = c.b().constant(c.get_double(1, 0), c.result_type(0).dtype);
  ValueId base = c.b().broadcast(fill, target);
  if (std::all_of(p.kept.begin(), p.kept.end(), [](int64_t d) { return d > 0; })) {
    ValueId part = c.b().view(c.raw(0).id(), contiguous_strides(source), p.kept, contiguous_strides(source), p.from);
    base = c.b().view_update(base, part, contiguous_strides(target), contiguous_strides(target), p.to);
  }
  c.set(0, {&c.b(), base});
}

// ---- Columns: attributes kernel, dilation, padding, stride, for col2im after the output size ----

void infer_im2col(InferContext& c) {
  Dims in = c.operand(0).dims;
  if (in.size() != 4) {
    fall_back("im2col of this rank");
  }
  int64_t blocks = 1;
  int64_t channels = in[1];
  for (size_t i = 0; i < 2; ++i) {
    Window w{pick(c.get_dims(0), i, 1), pick(c.get_dims(3), i, 1), pick(c.get_dims(2), i, 0), pick(c.get_dims(1), i, 1)};
    blocks *= conv_extent(in[2 + i], w);
    channels *= w.kernel;
  }
  c.add_result(c.operand(0).dtype, {in[0], channels, blocks});
}

void infer_col2im(InferContext& c) {
  Dims in = c.operand(0).dims;
  Dims out = c.get_dims(0);
  Dims kernel = c.get_dims(1);
  if (in.size() != 3 || out.size() != 2) {
    fall_back("col2im of this rank");
  }
  c.add_result(c.operand(0).dtype, {in[0], in[1] / (pick(kernel, 0, 1) * pick(kernel, 1, 1)), out[0], out[1]});
}

// ---- pixel_shuffle: attribute factor ----

void infer_pixel_shuffle(InferContext& c) {
  Dims dims = c.operand(0).dims;
  int64_t r = c.get_int(0);
  if (dims.size() < 3 || r <= 0 || dims[dims.size() - 3] % (r * r)) {
    fall_back("pixel_shuffle of these sizes");
  }
  dims[dims.size() - 3] /= r * r;
  dims[dims.size() - 2] *= r;
  dims[dims.size() - 1] *= r;
  c.add_result(c.operand(0).dtype, dims);
}

void infer_pixel_unshuffle(InferContext& c) {
  Dims dims = c.operand(0).dims;
  int64_t r = c.get_int(0);
  if (dims.size() < 3 || r <= 0 || dims[dims.size() - 2] % r || dims[dims.size() - 1] % r) {
    fall_back("pixel_unshuffle of these sizes");
  }
  dims[dims.size() - 3] *= r * r;
  dims[dims.size() - 2] /= r;
  dims[dims.size() - 1] /= r;
  c.add_result(c.operand(0).dtype, dims);
}

void infer_grid_sampler(InferContext& c) {
  Dims in = c.operand(0).dims;
  Dims grid = c.operand(1).dims;
  if (in.size() < 4 || grid.size() != in.size() || grid[0] != in[0] || grid.back() != static_cast<int64_t>(in.size()) - 2) {
    fall_back("grid_sampler of these sizes");
  }
  Dims out{in[0], in[1]};
  for (size_t i = 1; i + 1 < grid.size(); ++i) {
    out.push_back(grid[i]);
  }
  c.add_result(c.operand(0).dtype, out);
}

#define ROW(NAME, INFER) {.name = "aten::" NAME, .kind = OpKind::kLibrary, .infer = INFER}
#define HEAVY(NAME, INFER) {.name = "aten::" NAME, .kind = OpKind::kLibrary, .traits = kHeavy, .infer = INFER}
#define UPSAMPLE(NAME, RANK) ROW(NAME, infer_upsample<RANK>), ROW(NAME "_backward", infer_upsample_backward)
#define PAD(NAME) ROW(NAME, infer_pad), ROW(NAME "_backward", like_operand<1>)

constinit const Op kRows[] = {
    HEAVY("convolution", infer_convolution),
    HEAVY("convolution_backward", infer_convolution_backward),
    ROW("max_pool2d_with_indices", infer_max_pool<2>),
    ROW("max_pool2d_with_indices_backward", like_operand<1>),
    ROW("max_pool3d_with_indices", infer_max_pool<3>),
    ROW("max_pool3d_with_indices_backward", like_operand<1>),
    ROW("avg_pool2d", infer_avg_pool<2>),
    ROW("avg_pool2d_backward", like_operand<1>),
    ROW("avg_pool3d", infer_avg_pool<3>),
    ROW("avg_pool3d_backward", like_operand<1>),
    ROW("_adaptive_avg_pool2d", infer_adaptive<2>),
    ROW("_adaptive_avg_pool2d_backward", like_operand<1>),
    ROW("_adaptive_avg_pool3d", infer_adaptive<3>),
    ROW("_adaptive_avg_pool3d_backward", like_operand<1>),
    ROW("adaptive_max_pool2d", infer_adaptive_max<2>),
    ROW("adaptive_max_pool2d_backward", like_operand<1>),
    ROW("adaptive_max_pool3d", infer_adaptive_max<3>),
    ROW("adaptive_max_pool3d_backward", like_operand<1>),
    UPSAMPLE("upsample_nearest1d", 1),
    UPSAMPLE("upsample_nearest2d", 2),
    UPSAMPLE("upsample_nearest3d", 3),
    UPSAMPLE("_upsample_nearest_exact1d", 1),
    UPSAMPLE("_upsample_nearest_exact2d", 2),
    UPSAMPLE("_upsample_nearest_exact3d", 3),
    UPSAMPLE("upsample_linear1d", 1),
    UPSAMPLE("upsample_bilinear2d", 2),
    UPSAMPLE("upsample_trilinear3d", 3),
    UPSAMPLE("upsample_bicubic2d", 2),
    {.name = "aten::constant_pad_nd", .kind = OpKind::kComposite, .infer = infer_pad, .expand = expand_pad},
    PAD("reflection_pad1d"),
    PAD("reflection_pad2d"),
    PAD("reflection_pad3d"),
    PAD("replication_pad1d"),
    PAD("replication_pad2d"),
    PAD("replication_pad3d"),
    ROW("im2col", infer_im2col),
    ROW("col2im", infer_col2im),
    ROW("pixel_shuffle", infer_pixel_shuffle),
    ROW("pixel_unshuffle", infer_pixel_unshuffle),
    ROW("grid_sampler_2d", infer_grid_sampler),
    ROW("grid_sampler_3d", infer_grid_sampler),
};

} // namespace

std::span<const Op> conv_ops() {
  return kRows;
}

} // namespace torch_xla
