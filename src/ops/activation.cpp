// Activations and their backward forms.
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// Activation of one tensor and numbers.
#define ACTIVATION(NAME, EXPRESSION, ...) POINTWISE(NAME, kSelf, kFloatOnly | kNumbersFit, EXPRESSION, __VA_ARGS__)
#define CLAMP(NAME, EXPRESSION, ...) POINTWISE(NAME, kSelf, kNoBool | kNumbersFit, EXPRESSION, __VA_ARGS__)
// Backward form of a gradient and saved tensors.
#define BACKWARD(NAME, EXPRESSION, ...) POINTWISE(NAME, kPromote, kFloatOnly | kNumbersFit, EXPRESSION, __VA_ARGS__)

constexpr double kSqrtHalf = 0.707106781186547524401; // sqrt(1/2)
constexpr double kDensity = 0.398942280401432677939; // 1/sqrt(2 pi)
constexpr double kTanhBeta = 0.797884560802865355880; // sqrt(2/pi)
constexpr double kTanhKappa = 0.044715;

bool names_gelu(std::span<const double>, const Attrs& attrs) {
  return attr_is(attrs[0], "none") || attr_is(attrs[0], "tanh");
}

// softshrink's lambda.
bool has_width(std::span<const double> numbers, const Attrs&) {
  return numbers[0] >= 0 && std::isfinite(numbers[0]);
}

bool is_tanh(const BodyArgs& a) {
  return attr_is(a.attr(0), "tanh");
}

Ex tanh_of_gelu(Ex x) {
  return tanh((x + sq(x) * x * kTanhKappa) * kTanhBeta);
}

Ex gelu(const BodyArgs& a) {
  Ex x = a[0];
  return is_tanh(a) ? x * 0.5 * (tanh_of_gelu(x) + 1.0) : x.unary(Prim::kGelu);
}

Ex gelu_tanh_slope(Ex x) {
  Ex t = tanh_of_gelu(x);
  Ex inner = (sq(x) * (3 * kTanhKappa) + 1.0) * kTanhBeta;
  return (t + 1.0) * 0.5 + x * 0.5 * (1.0 - sq(t)) * inner;
}

Ex gelu_slope(Ex x) {
  return (erf(x * kSqrtHalf) + 1.0) * 0.5 + x * exp(sq(x) * -0.5) * kDensity;
}

Ex silu_slope(Ex x) {
  Ex s = logistic(x);
  return s * (x * (1.0 - s) + 1.0);
}

Ex mish(Ex x) {
  return x * tanh(log1p(exp(x)));
}

Ex mish_slope(Ex x) {
  Ex t = tanh(log1p(exp(x)));
  return t + x * logistic(x) * (1.0 - sq(t));
}

Ex softplus(Ex x, Ex beta, Ex threshold) {
  Ex z = x * beta;
  return select(z > threshold, x, log1p(exp(z)) / beta);
}

Ex softplus_backward(Ex g, Ex x, Ex beta, Ex threshold) {
  Ex z = x * beta;
  return select(z > threshold, g, g * logistic(z));
}

Ex elu(Ex x, Ex alpha, Ex scale, Ex input_scale) {
  return select(x <= 0.0, expm1(x * input_scale) * (alpha * scale), x * scale);
}

// A gradient computed from the result instead of the input (attribute 0) needs a slope that keeps the sign.
bool keeps_sign(std::span<const double> numbers, const Attrs& attrs) {
  return !attr_bool(attrs[0]) || numbers[0] >= 0;
}

// Comparisons in gradients take the branch of ATen's vector code for NaN: ATen's scalar code takes the other one.
Ex elu_backward(const BodyArgs& a) {
  Ex g = a[0];
  Ex lower = a[1] * a[2];
  Ex x = a[4];
  Ex negative = attr_bool(a.attr(0)) ? g * a[3] * (x + lower) : g * a[3] * lower * exp(x * a[3]);
  return select(x > 0.0, g * a[2], negative);
}

// Between 0 and 6.
Ex relu6(Ex x) {
  return min(max(x, 0.0), 6.0);
}

Ex hardswish_backward(Ex g, Ex x) {
  return select(x <= -3.0, 0.0, select(x >= 3.0, g, g * (x / 3.0 + 0.5)));
}

Ex logit_backward(const BodyArgs& a) {
  Ex x = a[1];
  double eps = attr_double(a.attr(0), -1);
  Ex slope = a[0] / (x * (1.0 - x));
  Ex outside = (x < std::max(eps, 0.0)) | (x > 1 - std::max(eps, 0.0));
  return select(outside, eps < 0 ? kNaN : 0.0, slope);
}

Ex log_sigmoid_backward(Ex g, Ex x, Ex buffer) {
  Ex part = buffer / (buffer + 1.0);
  return g * select(x < 0.0, 1.0 - part, part);
}

void infer_log_sigmoid(InferContext& c) {
  like_float_operand<0>(c);
  like_operand<0>(c);
}

void expand_log_sigmoid(ExpandContext& c) {
  Ex x = c.computed(0);
  Ex buffer = exp(-abs(x));
  c.set(0, min(x, 0.0) - log1p(buffer));
  c.set(1, buffer);
}

// The two halves along a dim: a view of x.
Ex half(ExpandContext& c, Ex x, int64_t dim, int64_t which) {
  Dims dims = x.type().dims;
  Dims strides = contiguous_strides(dims);
  dims[dim] /= 2;
  return {&c.b(), c.b().view(x.id(), contiguous_strides(x.type().dims), dims, strides, which * dims[dim] * strides[dim])};
}

void infer_glu(InferContext& c) {
  require_float(c, 0);
  Type type = c.operand(0);
  if (type.dims.empty()) {
    fall_back("glu of a 0-d tensor");
  }
  int64_t dim = wrap_dim(c.get_int(0, -1), type.dims.size());
  if (type.dims[dim] % 2) {
    fall_back("glu of an odd extent");
  }
  type.dims[dim] /= 2;
  c.add_result(type.dtype, type.dims);
}

// Operands gradient, self.
void infer_glu_backward(InferContext& c) {
  Type self = c.operand(1);
  Type gradient = c.operand(0);
  int64_t dim = wrap_dim(c.get_int(0), self.dims.size());
  bool fits = !self.dims.empty() && gradient.dims.size() == self.dims.size() && self.dims[dim] % 2 == 0;
  Dims halves = self.dims;
  if (fits) {
    halves[dim] /= 2;
  }
  if (!fits || gradient.dims != halves || gradient.dtype != self.dtype) {
    fall_back("a gradient that does not fit the input of glu");
  }
  like_float_operand<1>(c);
}

void expand_glu(ExpandContext& c) {
  Ex x = c.computed(0);
  int64_t dim = wrap_dim(c.get_int(0, -1), x.type().dims.size());
  c.set(0, half(c, x, dim, 0) * logistic(half(c, x, dim, 1)));
}

void expand_glu_backward(ExpandContext& c) {
  Ex g = c.computed(0);
  Ex x = c.computed(1);
  int64_t dim = wrap_dim(c.get_int(0), x.type().dims.size());
  Ex gate = logistic(half(c, x, dim, 1));
  Ex of_first = g * gate;
  ValueId parts[] = {of_first.id(), (of_first * (1.0 - gate) * half(c, x, dim, 0)).id()};
  Type joined = x.type();
  c.set(0, {&c.b(), c.b().library(get_op("aten::cat"), parts, {int64_t{2}, dim}, {&joined, 1})});
}

void infer_prelu_backward(InferContext& c) {
  same_dtype(c, 0, 1);
  same_dtype(c, 1, 2);
  if (c.operand(0).dims != c.operand(1).dims || !expands_to(c.operand(2).dims, c.operand(1).dims)) {
    fall_back("a gradient or weight that does not fit the input of prelu");
  }
  like_operand<1>(c);
  c.add_result(c.operand(2).dtype, broadcast_dims(c.operand(1).dims, c.operand(2).dims));
}

// The gradient of the weight is summed to its shape by autograd.
void expand_prelu_backward(ExpandContext& c) {
  Ex g = c.computed(0);
  Ex x = c.computed(1);
  c.set(0, select(x > 0.0, g, c.computed(2) * g));
  c.set(1, select(x > 0.0, 0.0, x * g));
}

constinit const Op kRows[] = {
    CLAMP("relu", max(a[0], 0.0), .epilogue = "relu"),
    POINTWISE("silu", kSelf, kFloatOnly | kNumbersFit | kComplex, a[0] * logistic(a[0]), .epilogue = "swish"),
    ACTIVATION("mish", mish(a[0])),
    ACTIVATION("gelu", gelu(a), .takes = names_gelu, .epilogue = "gelu"),
    ACTIVATION("hardswish", a[0] * relu6(a[0] + 3.0) / 6.0, .epilogue = "hardswish"),
    ACTIVATION("hardsigmoid", relu6(a[0] + 3.0) / 6.0),
    CLAMP("hardtanh", min(max(a[0], a[1]), a[2])),
    ACTIVATION("leaky_relu", select(a[0] > 0.0, a[0], a[0] * a[1])),
    ACTIVATION("elu", elu(a[0], a[1], a[2], a[3])),
    ACTIVATION("softplus", softplus(a[0], a[1], a[2])),
    CLAMP("threshold", select(a[0] <= a[1], a[2], a[0])),
    ACTIVATION("hardshrink", select((a[0] >= -a.rounded(1)) & (a[0] <= a.rounded(1)), 0.0, a[0])),
    ACTIVATION("softshrink", select(a[0] > a[1], a[0] - a[1], select(a[0] < -a[1], a[0] + a[1], a[0] * 0.0)), .takes = has_width),
    ACTIVATION("_prelu_kernel", select(a[0] > 0.0, a[0], a[0] * a[1])),
    POINTWISE("sigmoid_backward", kPromote, kFloatOnly | kNumbersFit | kComplex, a[0] * ((1.0 - a[1]) * a[1])),
    POINTWISE("tanh_backward", kPromote, kFloatOnly | kNumbersFit | kComplex, a[0] * (1.0 - sq(a[1]))),
    POINTWISE("threshold_backward", kPromote, kNoBool | kNumbersFit, select(a[1] <= a[2], 0.0, a[0])),
    BACKWARD("gelu_backward", a[0] * (is_tanh(a) ? gelu_tanh_slope(a[1]) : gelu_slope(a[1])), .takes = names_gelu),
    POINTWISE("silu_backward", kPromote, kFloatOnly | kNumbersFit | kComplex, a[0] * silu_slope(a[1])),
    BACKWARD("mish_backward", a[0] * mish_slope(a[1])),
    BACKWARD("hardswish_backward", hardswish_backward(a[0], a[1])),
    BACKWARD("hardsigmoid_backward", select((a[1] > -3.0) & (a[1] < 3.0), a[0] / 6.0, 0.0)),
    BACKWARD("hardtanh_backward", select((a[1] > a[2]) & (a[1] < a[3]), a[0], 0.0)),
    BACKWARD("leaky_relu_backward", select(a[1] > 0.0, a[0], a[0] * a[2]), .takes = keeps_sign),
    BACKWARD("elu_backward", elu_backward(a), .takes = keeps_sign),
    BACKWARD("softplus_backward", softplus_backward(a[0], a[1], a[2], a[3])),
    BACKWARD("hardshrink_backward", select((a[1] < -a.rounded(2)) | (a[1] > a.rounded(2)), a[0], 0.0)),
    BACKWARD("softshrink_backward", select((a[1] < -a[2]) | (a[1] > a[2]), a[0], 0.0)),
    BACKWARD("log_sigmoid_backward", log_sigmoid_backward(a[0], a[1], a[2])),
    BACKWARD("logit_backward", logit_backward(a)),
    POINTWISE("native_dropout_backward", kPromoteFloat, kNoTraits, a[0] * a[1] * attr_double(a.attr(0), 1)), // mask is 0 or 1
    COMPOSITE("log_sigmoid_forward", infer_log_sigmoid, expand_log_sigmoid),
    COMPOSITE("glu", infer_glu, expand_glu, .layout = ResultLayout::kOfOperands),
    SHAPED_CALL("glu_jvp", like_operand<0>, kFloats),
    SHAPED_CALL("glu_backward_jvp", like_operand<0>, kFloats),
    LIBRARY("glu_backward", infer_glu_backward, .expand = expand_glu_backward),
    COMPOSITE("_prelu_kernel_backward", infer_prelu_backward, expand_prelu_backward, .layout = ResultLayout::kOfOperand, .order_of = 1),
};

} // namespace

std::span<const Op> activation_ops() {
  return kRows;
}

} // namespace torch_xla
