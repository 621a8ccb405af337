// Losses and their backward forms.
#include "core/errors.h"
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 }; // at::Reduction

// ---- Elementwise losses: operands self, target; attributes reduction, parameter ----

template <bool ZeroFits>
void infer_loss(InferContext& c) {
  DType dtype = same_dtype(c, 0, 1);
  require_float(c, 0);
  double parameter = c.num_attrs() > 1 ? c.get_double(1, 1) : 1;
  if (parameter < 0 || (parameter == 0 && !ZeroFits)) {
    fall_back("a loss with this parameter");
  }
  Dims dims = broadcast_dims(c.operand(0).dims, c.operand(1).dims);
  c.add_result(dtype, c.get_int(0, kMean) == kNone ? dims : Dims());
}

void set_reduced(ExpandContext& c, Ex loss) {
  int64_t reduction = c.get_int(0, kMean);
  Dims dims = loss.type().dims;
  if (reduction == kNone) {
    c.set(0, loss);
    return;
  }
  Ex sum = reduce_sum(loss, all_dims(dims.size()));
  c.set(0, reduction == kMean ? sum / static_cast<double>(num_elements(dims)) : sum);
}

using LossBody = Ex (*)(Ex difference, double parameter);

template <LossBody Body>
void expand_loss(ExpandContext& c) {
  set_reduced(c, Body(c.computed(0) - c.computed(1), c.num_attrs() > 1 ? c.get_double(1, 1) : 1));
}

Ex squared(Ex d, double) {
  return sq(d);
}

Ex smooth_l1(Ex d, double beta) {
  Ex z = abs(d);
  return beta == 0 ? z : select(z < beta, sq(z) * 0.5 / beta, z - 0.5 * beta);
}

Ex huber(Ex d, double delta) {
  Ex z = abs(d);
  return select(z <= delta, sq(z) * 0.5, (z - 0.5 * delta) * delta);
}

// Operands gradient, self, target.
void infer_loss_backward(InferContext& c) {
  DType dtype = same_dtype(c, 1, 2);
  require_float(c, 1);
  c.add_result(dtype, broadcast_dims(c.operand(0).dims, broadcast_dims(c.operand(1).dims, c.operand(2).dims)));
}

template <LossBody Slope>
void expand_loss_backward(ExpandContext& c) {
  Ex d = c.computed(1) - c.computed(2);
  double scale = c.get_int(0, kMean) == kMean ? 1 / static_cast<double>(c.operand(1).numel()) : 1;
  c.set(0, Slope(d, c.num_attrs() > 1 ? c.get_double(1, 1) : 1) * (c.computed(0) * scale));
}

Ex squared_slope(Ex d, double) {
  return d * 2.0;
}

Ex sign(Ex d) {
  return select(d > 0.0, 1.0, select(d < 0.0, -1.0, d));
}

Ex smooth_l1_slope(Ex d, double beta) {
  return beta == 0 ? sign(d) : select(abs(d) < beta, d / beta, sign(d));
}

Ex huber_slope(Ex d, double delta) {
  return select(abs(d) <= delta, d, sign(d) * delta);
}

// ---- Binary cross entropy: operands (gradient,) self, target, weight ----

void infer_bce(InferContext& c) {
  DType dtype = same_dtype(c, 0, 1);
  require_float(c, 0);
  XLA_CHECK_KIND(
      Value,
      c.operand(0).dims == c.operand(1).dims,
      "Using a target size (",
      sizes_text(c.operand(1).dims),
      ") that is different to the input size (",
      sizes_text(c.operand(0).dims),
      ") is deprecated. Please ensure they have the same size.");
  if (c.has(2) && (same_dtype(c, 0, 2) != dtype || broadcast_dims(c.operand(2).dims, c.operand(0).dims) != c.operand(0).dims)) {
    fall_back("a weight that does not fit the input");
  }
  c.add_result(dtype, c.get_int(0, kMean) == kNone ? c.operand(0).dims : Dims());
}

Ex weighted(ExpandContext& c, size_t weight, Ex loss) {
  return c.has(weight) ? loss * c.raw(weight).to(loss.dtype()) : loss;
}

void expand_bce(ExpandContext& c) {
  Ex x = c.computed(0);
  Ex t = c.computed(1);
  Ex loss = (t - 1.0) * max(log1p(-x), -100.0) - t * max(log(x), -100.0);
  set_reduced(c, weighted(c, 2, loss));
}

void infer_bce_backward(InferContext& c) {
  same_dtype(c, 1, 2);
  like_float_operand<1>(c);
}

void expand_bce_backward(ExpandContext& c) {
  Ex x = c.computed(1);
  Ex slope = c.computed(0) * (x - c.computed(2)) / max((1.0 - x) * x, 1e-12);
  double scale = c.get_int(0, kMean) == kMean ? 1 / static_cast<double>(x.type().numel()) : 1;
  c.set(0, weighted(c, 3, slope) * scale);
}

// ---- Negative log likelihood: operands (gradient,) self, target, weight, (total weight); attributes reduction, ignore index ----

size_t class_dim(const Dims& dims) {
  return dims.size() == 1 ? 0 : 1;
}

bool is_target(DType t) {
  return t == DType::I64 || t == DType::U8;
}

void infer_nll(InferContext& c) {
  require_float(c, 0);
  Type self = c.operand(0);
  Dims target = c.operand(1).dims;
  if (!is_target(c.operand(1).dtype) || self.dims.empty() || (c.has(2) && c.operand(2).dtype != self.dtype) ||
      (c.has(2) && c.operand(2).dims != Dims{self.dims[class_dim(self.dims)]})) {
    fall_back("nll_loss of these shapes");
  }
  Dims want = self.dims.size() == 1 ? target : reduced_dims(self.dims, {1}, false);
  if (target != want) {
    fall_back("the target does not fit the input of nll_loss");
  }
  bool each = c.get_int(0) == kNone && self.dims.size() > 1;
  c.add_result(self.dtype, each ? want : Dims());
  c.add_result(self.dtype, {});
}

void infer_nll_backward(InferContext& c) {
  if (c.operand(1).dims.empty() || !is_target(c.operand(2).dtype)) {
    fall_back("nll_loss of these shapes");
  }
  like_float_operand<1>(c);
}

// Dims of a value per target element beside the classes.
Dims beside_classes(const Dims& dims) {
  Dims result = dims;
  result[class_dim(dims)] = 1;
  return result;
}

struct Targets {
  Ex classes; // I32
  Ex count; // whether they are not the ignored index
};

// With one element in place of the classes.
Targets read_targets(ExpandContext& c, const Dims& dims, size_t operand) {
  Ex target = c.raw(operand).reshape(beside_classes(dims));
  target = target.dtype() == DType::U8 ? target.to(DType::I32) : target; // so that no ignored index wraps
  Ex ignored(&c.b(), c.b().constant_int(c.get_int(1, -100), target.dtype()));
  return {target.to(DType::I32), target != ignored};
}

// For each element of x: whether its class is the target and not ignored. A test of iota, not a gather, so that it fuses with log_softmax.
Ex is_target_class(Ex x, const Targets& targets) {
  Dims dims = x.type().dims;
  Ex index(&x.b(), x.b().iota(dims, static_cast<int64_t>(class_dim(dims)), DType::I32));
  return (index == targets.classes) & targets.count;
}

// The weights, per class.
Ex class_weights(ExpandContext& c, Ex x, size_t operand) {
  if (!c.has(operand)) {
    return x.constant(1);
  }
  Dims per_class(x.type().dims.size(), 1);
  per_class[class_dim(x.type().dims)] = x.type().dims[class_dim(x.type().dims)];
  return c.raw(operand).to(x.dtype()).reshape(per_class);
}

void expand_nll(ExpandContext& c) {
  Ex x = c.computed(0);
  Targets targets = read_targets(c, x.type().dims, 1);
  Ex chosen = is_target_class(x, targets);
  Ex weight = class_weights(c, x, 2);
  Dims classes{static_cast<int64_t>(class_dim(x.type().dims))};
  Ex loss = reduce_sum(select(chosen, -x * weight, 0.0), classes);
  if (!c.result_type(0).dims.empty()) { // one for each target
    c.set(0, loss);
    c.set(1, x.constant(0));
    return;
  }
  Dims all = all_dims(x.type().dims.size());
  Ex total = reduce_sum(select(c.has(2) ? chosen : targets.count, weight, 0.0), all);
  Ex sum = reduce_sum(loss, all);
  c.set(0, c.get_int(0) == kMean ? sum / total : sum);
  c.set(1, total);
}

// Minus the gradient where the class is the target.
void expand_nll_backward(ExpandContext& c) {
  Ex x = c.computed(1);
  Ex g = c.computed(0);
  if (c.get_int(0) == kMean) {
    g = g / c.computed(4);
  }
  g = g.type().dims.empty() ? g : g.reshape(beside_classes(x.type().dims));
  Ex loss = -g;
  loss = c.has(3) ? loss * class_weights(c, x, 3) : loss;
  c.set(0, select(is_target_class(x, read_targets(c, x.type().dims, 2)), loss, 0.0));
}

// The loss (a number if reduced or for one row), and a mask of the target classes.
void infer_multilabel_margin(InferContext& c) {
  Type x = c.operand(0);
  Type targets = c.operand(1);
  if (x.dims.size() > 2 || targets.dims != x.dims) {
    fall_back("shapes that ATen checks");
  }
  bool each = c.get_int(0) == kNone && x.dims.size() == 2;
  c.add_result(x.dtype, each ? Dims{x.dims[0]} : Dims{});
  c.add_result(x.dtype, targets.dims);
}

// Operands self ([rows, classes] or [classes]), target ([rows] or a number) and weight; attributes p, margin, reduction. Not by ATen's
// shape rule: that is Python code, and runs for each new margin.
void infer_multi_margin(InferContext& c) {
  const Type x = c.operand(0);
  const Type target = c.operand(1);
  const int64_t rows = x.dims.size() == 2 ? x.dims[0] : 1;
  const int64_t classes = x.dims.empty() ? 1 : x.dims.back();
  const bool fits = x.dims.size() <= 2 && classes > 0 && target.dtype == DType::I64 && target.dims.size() <= 1 && target.numel() == rows;
  const bool weights_fit = !c.has(2) || (c.operand(2).dtype == x.dtype && c.operand(2).dims.size() <= 1 && c.operand(2).numel() == classes);
  if (!fits || !weights_fit || (c.get_double(0) != 1 && c.get_double(0) != 2)) {
    fall_back("arguments that ATen checks");
  }
  c.add_result(x.dtype, c.get_int(2) == kNone && !target.dims.empty() ? Dims{rows} : Dims{});
}

constinit const Op kRows[] = {
    COMPOSITE("mse_loss", infer_loss<true>, expand_loss<squared>, .layout = ResultLayout::kOfOperands),
    COMPOSITE("mse_loss_backward", infer_loss_backward, expand_loss_backward<squared_slope>),
    COMPOSITE("smooth_l1_loss", infer_loss<true>, expand_loss<smooth_l1>, .layout = ResultLayout::kOfOperands),
    COMPOSITE("smooth_l1_loss_backward", infer_loss_backward, expand_loss_backward<smooth_l1_slope>),
    COMPOSITE("huber_loss", infer_loss<false>, expand_loss<huber>, .layout = ResultLayout::kOfOperands),
    COMPOSITE("huber_loss_backward", infer_loss_backward, expand_loss_backward<huber_slope>),
    // A library call, because ATen checks that the input lies between 0 and 1.
    LIBRARY("binary_cross_entropy", infer_bce, .expand = expand_bce, .layout = ResultLayout::kOfOperand, .traits = kChecksValues),
    COMPOSITE("binary_cross_entropy_backward", infer_bce_backward, expand_bce_backward, .layout = ResultLayout::kOfOperand, .order_of = 1),
    LIBRARY("nll_loss_forward", infer_nll, .expand = expand_nll, .traits = kChecksValues),
    LIBRARY("nll_loss2d_forward", infer_nll, .expand = expand_nll, .traits = kChecksValues),
    COMPOSITE("nll_loss_backward", infer_nll_backward, expand_nll_backward),
    COMPOSITE("nll_loss2d_backward", infer_nll_backward, expand_nll_backward),
    SHAPED_CALL("multi_margin_loss", infer_multi_margin, kFloats, .traits = kChecksValues),
    SHAPED_CALL("multi_margin_loss_backward", like_operand<1>, kFloats),
    SHAPED_CALL("multilabel_margin_loss_forward", infer_multilabel_margin, kFloats, .traits = kChecksValues),
    SHAPED_CALL("multilabel_margin_loss_backward", like_operand<1>, kFloats),
    CALL("_ctc_loss", kFloats, .traits = kChecksValues),
    SHAPED_CALL("_ctc_loss_backward", like_operand<1>, kFloats),
};

} // namespace

std::span<const Op> loss_ops() {
  return kRows;
}

} // namespace torch_xla
