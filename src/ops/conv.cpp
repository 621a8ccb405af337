// Convolutions and pools, forward and backward: calls of ATen's kernels. These rules give only extents, not the memory
// format.
#include "core/errors.h"
#include "ops/row.h"
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

void check_window(const Window& w) {
  if (w.kernel <= 0 || w.stride <= 0 || w.dilation <= 0 || w.padding < 0) {
    fall_back("a window that ATen refuses");
  }
}

int64_t conv_extent(int64_t in, const Window& w) {
  check_window(w);
  if (in + 2 * w.padding < covered(w)) {
    fall_back("a window larger than its input"); // ATen names all its sizes
  }
  return (in + 2 * w.padding - covered(w)) / w.stride + 1;
}

int64_t transposed_extent(int64_t in, const Window& w, int64_t output_padding) {
  check_window(w);
  int64_t out = (in - 1) * w.stride - 2 * w.padding + covered(w) + output_padding;
  if (out <= 0 || output_padding < 0 || output_padding >= std::max(w.stride, w.dilation)) {
    fall_back("a transposed convolution of this size");
  }
  return out;
}

// Attribute 2: the dilation.
bool is_dilated(const InferContext& c) {
  const Dims dilation = c.get_dims(2);
  return std::any_of(dilation.begin(), dilation.end(), [](int64_t d) { return d != 1; });
}

void check_conv(const InferContext& c, bool transposed, int64_t groups) {
  Dims in = c.operand(0).dims;
  Dims weight = c.operand(1).dims;
  if (in.size() < 3 || in.size() != weight.size() || groups <= 0) {
    fall_back("a convolution of these ranks");
  }
  if (c.operand(1).numel() == 0 || (in[0] > 0 && c.operand(0).numel() == 0)) {
    fall_back("a convolution without elements"); // ATen's result may have other sizes
  }
  const DType dtype = same_dtype(c, 0, 1);
  const bool is_slow = transposed || is_dilated(c); // by kernels with Long as their only integer type
  if (dtype == DType::Bool || (is_slow && is_integral(dtype, false) && dtype != DType::I64)) {
    fall_back("a convolution of this type");
  }
  int64_t outputs = transposed ? weight[1] * groups : weight[0];
  if (weight[0] % groups || (c.has(2) && (c.operand(2).dims != Dims{outputs} || c.operand(2).dtype != c.operand(0).dtype))) {
    fall_back("a convolution with this weight or bias");
  }
  int64_t channels = transposed ? weight[0] : weight[1] * groups;
  XLA_CHECK(
      in[1] == channels,
      "Given groups=",
      groups,
      transposed ? ", transposed=1" : "",
      ", weight of size ",
      sizes_text(weight),
      ", expected input",
      sizes_text(in),
      " to have ",
      channels,
      " channels, but got ",
      in[1],
      " channels instead");
}

Dims convolution_dims(const InferContext& c) {
  bool transposed = c.get_bool(3);
  int64_t groups = c.get_int(5);
  Dims in = c.operand(0).dims;
  Dims weight = c.operand(1).dims;
  Dims out{in[0], transposed ? weight[1] * groups : weight[0]};
  for (size_t i = 2; i < in.size(); ++i) {
    Window w{weight[i], pick(c.get_dims(0), i - 2, 1), pick(c.get_dims(1), i - 2, 0), pick(c.get_dims(2), i - 2, 1)};
    out.push_back(transposed ? transposed_extent(in[i], w, pick(c.get_dims(4), i - 2, 0)) : conv_extent(in[i], w));
  }
  return out;
}

void infer_convolution(InferContext& c) {
  check_conv(c, c.get_bool(3), c.get_int(5));
  c.add_result(c.operand(0).dtype, convolution_dims(c));
}

void infer_fused_convolution(InferContext& c) {
  c.add_result(c.operand(0).dtype, convolution_dims(c));
}

// Operands input, weight, bias, then scale and zero of the input, scales and zeros of the weight; attributes as above. It convolves the
// numbers scale * (integer - zero); a zero may be none.
void infer_quantized_convolution(InferContext& c) {
  c.add_result(DType::F32, convolution_dims(c));
}

// Operands gradient, input, weight; attributes bias sizes, stride, ..., groups, output mask.
void infer_convolution_backward(InferContext& c) {
  size_t rank = c.operand(1).dims.size();
  if (rank < 3 || rank != c.operand(0).dims.size() || rank != c.operand(2).dims.size() || c.get_int(6) <= 0) {
    fall_back("a convolution of these ranks");
  }
  same_dtype(c, 0, 1);
  same_dtype(c, 0, 2);
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
  if (!is_float(c.operand(0).dtype) && !(Dilated && is_integral(c.operand(0).dtype, false))) {
    fall_back("a pool of this type"); // an integer type has a largest number
  }
  Dims out = c.operand(0).dims;
  if (out.size() != N + 1 && out.size() != N + 2) {
    fall_back("a pool of this rank");
  }
  if (num_elements(out) == 0 || (!Dilated && !c.is_none(5) && c.get_int(5) == 0)) {
    fall_back("a pool without elements, or by an empty window");
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
  require_float(c, 0);
  Dims dims = c.operand(0).dims;
  Dims to = c.get_dims(attr);
  if ((dims.size() != N + 1 && dims.size() != N + 2) || (to.size() != N && to.size() != 1)) {
    fall_back("a pool of this rank");
  }
  for (size_t i = 0; i < N; ++i) {
    dims[dims.size() - N + i] = pick(to, i, 0);
    if (pick(to, i, 0) < 0) {
      fall_back("a negative size");
    }
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

// ---- Columns: attributes kernel, dilation, padding, stride, for col2im after the output size ----

void infer_im2col(InferContext& c) {
  require_float(c, 0);
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
  require_float(c, 0);
  Dims in = c.operand(0).dims;
  Dims out = c.get_dims(0);
  Dims kernel = c.get_dims(1);
  if (in.size() != 3 || out.size() != 2) {
    fall_back("col2im of this rank");
  }
  int64_t blocks = 1;
  for (size_t i = 0; i < 2; ++i) {
    Window w{pick(kernel, i, 1), pick(c.get_dims(4), i, 1), pick(c.get_dims(3), i, 0), pick(c.get_dims(2), i, 1)};
    blocks *= conv_extent(out[i], w);
  }
  if (in[2] != blocks || in[1] % (pick(kernel, 0, 1) * pick(kernel, 1, 1))) {
    fall_back("col2im of these sizes");
  }
  c.add_result(c.operand(0).dtype, {in[0], in[1] / (pick(kernel, 0, 1) * pick(kernel, 1, 1)), out[0], out[1]});
}

// The gradient lies as the input, operand 1, does.
#define POOL_BACKWARD(NAME, ...)                \
  LIBRARY(                                      \
      NAME,                                     \
      like_float_operand<1>,                    \
      .layout = ResultLayout::kFormatOfOperand, \
      .order_of = 1,                            \
      .kernel_layout = ResultLayout::kChannelsLast __VA_OPT__(, ) __VA_ARGS__)

// Three-dimensional means and adaptive pools are row-major in ATen.
constinit const Op kRows[] = {
    LIBRARY("convolution", infer_convolution, .layout = ResultLayout::kConvolution, .traits = kComplex | kSumsProducts | kOwnKernel),
    {.name = "xla::quantized_convolution",
     .kind = OpKind::kLibrary,
     .infer = infer_quantized_convolution,
     .layout = ResultLayout::kConvolution,
     .dtypes = kIntegers,
     .traits = kOwnKernel},
    // What passes/fuse_convolutions.cpp makes of a convolution and what follows it.
    {.name = "xla::fused_convolution",
     .kind = OpKind::kLibrary,
     .infer = infer_fused_convolution,
     .layout = ResultLayout::kConvolution,
     .dtypes = kHalves | kFloats,
     .traits = kOwnKernel},
    LIBRARY(
        "convolution_backward",
        infer_convolution_backward,
        .layout = ResultLayout::kConvolution,
        .order_of = 1,
        .traits = kComplex | kSumsProducts),
    SPATIAL("max_pool2d_with_indices", infer_max_pool<2>, .reads = kFasterChannelsLast, .traits = kMovesElements, .out_form = "out"),
    POOL_BACKWARD("max_pool2d_with_indices_backward", .out_form = "grad_input"),
    SPATIAL("max_pool3d_with_indices", infer_max_pool<3>),
    POOL_BACKWARD("max_pool3d_with_indices_backward"),
    SPATIAL("avg_pool2d", infer_avg_pool<2>, .out_form = "out"),
    POOL_BACKWARD("avg_pool2d_backward", .out_form = "grad_input"),
    LIBRARY("avg_pool3d", (of_types<kFloats, infer_avg_pool<3>>)),
    LIBRARY("avg_pool3d_backward", like_operand<1>),
    SPATIAL("_adaptive_avg_pool2d", infer_adaptive<2>),
    POOL_BACKWARD("_adaptive_avg_pool2d_backward"),
    LIBRARY("_adaptive_avg_pool3d", infer_adaptive<3>),
    LIBRARY("_adaptive_avg_pool3d_backward", like_operand<1>),
    SPATIAL("adaptive_max_pool2d", infer_adaptive_max<2>),
    POOL_BACKWARD("adaptive_max_pool2d_backward"),
    LIBRARY("adaptive_max_pool3d", infer_adaptive_max<3>),
    LIBRARY("adaptive_max_pool3d_backward", like_operand<1>, .reads = kDenseOperands),
    CALL("fractional_max_pool2d", kAllFloats),
    CALL("fractional_max_pool2d_backward", kAllFloats, .reads = kDenseOperands),
    CALL("fractional_max_pool3d", kAllFloats),
    SHAPED_CALL("fractional_max_pool3d_backward", like_operand<1>, kAllFloats, .reads = kDenseOperands),
    LIBRARY("max_unpool2d", nullptr, .layout = ResultLayout::kChannelsLast, .dtypes = kAllFloats, .traits = kChecksValues),
    CALL("max_unpool3d", kAllFloats, .traits = kChecksValues),
    LIBRARY("channel_shuffle", nullptr, .layout = ResultLayout::kChannelsLast, .dtypes = kAllTypes),
    CALL("slow_conv_transpose2d", kAllFloats),
    LIBRARY("im2col", infer_im2col, .traits = kComplex),
    LIBRARY("col2im", infer_col2im, .traits = kComplex),
};

} // namespace

std::span<const Op> conv_ops() {
  return kRows;
}

bool is_convolution(const Op& op) {
  return op.infer == &infer_convolution;
}

bool is_convolution_backward(const Op& op) {
  return op.infer == &infer_convolution_backward;
}

} // namespace torch_xla
