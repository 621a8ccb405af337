// Whole updates of one parameter by a fused optimizer or a gradient scaler. Operands and attributes are those of the ATen operations'
// schemas, with one tensor of each list; results are the tensors that they write.
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// Shared by the optimizers: lists come first, then numbers, last grad_scale and found_inf. Numbers are computed in float64, as ATen does on
// the host, tensors in float32 or wider.
class Update {
 public:
  Update(ExpandContext& c, size_t found_inf) : c_(c), found_inf_(found_inf) {}

  Ex number(size_t i) {
    return c_.raw(i).reshape({}).to(DType::F64);
  }
  // The same number in the type of the tensors.
  Ex factor(Ex number) {
    return number.to(compute_type(c_.operand(0).dtype));
  }
  Ex factor(size_t i) {
    return factor(number(i));
  }
  // Operand 1, without the scale of the losses.
  Ex unscaled_gradient() {
    Ex gradient = c_.computed(1);
    return c_.has(found_inf_ - 1) ? gradient / factor(found_inf_ - 1) : gradient;
  }
  // The gradient's sign for descent.
  Ex descent(Ex gradient, bool maximize) {
    return maximize ? -gradient : gradient;
  }
  // A step with infinite gradients changes nothing.
  void set(size_t result, size_t operand, Ex value) {
    Ex stored = value.to(c_.raw(operand).dtype());
    c_.set(result, c_.has(found_inf_) ? select(number(found_inf_) == 1.0, c_.raw(operand), stored) : stored);
  }

 private:
  ExpandContext& c_;
  const size_t found_inf_;
};

// Operands param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, step, lr, beta1, beta2, weight_decay, eps, grad_scale, found_inf; attributes
// amsgrad, maximize.
template <bool Decoupled>
void expand_adam(ExpandContext& c) {
  Update u(c, 12);
  Ex step = u.number(5);
  Ex lr = u.number(6);
  Ex param = c.computed(0);
  Ex unscaled = u.unscaled_gradient();
  Ex gradient = u.descent(unscaled, c.get_bool(1));
  if (Decoupled) {
    param = param * u.factor(1.0 - lr * u.number(9));
  } else {
    gradient = gradient + param * u.factor(9);
  }
  Ex mean = c.computed(2) + u.factor(1.0 - u.number(7)) * (gradient - c.computed(2));
  Ex square = c.computed(3) * u.factor(8) + u.factor(1.0 - u.number(8)) * gradient * gradient;
  Ex largest = c.has(4) && c.get_bool(0) ? max(c.computed(4), square) : square;
  Ex rate = u.factor(lr / (1.0 - pow(u.number(7), step)));
  Ex root = u.factor(sqrt(1.0 - pow(u.number(8), step)));
  u.set(0, 0, param - rate * mean / (sqrt(largest) / root + u.factor(10)));
  u.set(1, 1, unscaled);
  u.set(2, 2, mean);
  u.set(3, 3, square);
  if (c.has(4)) {
    u.set(4, 4, largest);
  }
}

// Operands param, grad, momentum_buffer, weight_decay, momentum, lr, dampening, grad_scale, found_inf; attributes nesterov, maximize,
// is_first_step.
void expand_sgd(ExpandContext& c) {
  Update u(c, 8);
  Ex param = c.computed(0);
  Ex unscaled = u.unscaled_gradient();
  Ex gradient = u.descent(unscaled, c.get_bool(1)) + param * u.factor(3);
  Ex direction = gradient;
  if (c.has(2)) {
    Ex buffer = c.get_bool(2) ? gradient : c.computed(2) * u.factor(4) + gradient * u.factor(1.0 - u.number(6));
    direction = c.get_bool(0) ? gradient + u.factor(4) * buffer : buffer;
    u.set(2, 2, buffer);
  }
  u.set(0, 0, param - u.factor(5) * direction);
  u.set(1, 1, unscaled);
}

// Operands param, grad, state_sum, step, lr, lr_decay, weight_decay, eps, grad_scale, found_inf; attribute maximize.
void expand_adagrad(ExpandContext& c) {
  Update u(c, 9);
  Ex param = c.computed(0);
  Ex unscaled = u.unscaled_gradient();
  Ex gradient = u.descent(unscaled, c.get_bool(0)) + param * u.factor(6);
  Ex sum = c.computed(2) + gradient * gradient;
  Ex rate = u.factor(u.number(4) / (1.0 + (u.number(3) - 1.0) * u.number(5)));
  u.set(0, 0, param - rate * gradient / (sqrt(sum) + u.factor(7)));
  u.set(1, 1, unscaled);
  u.set(2, 2, sum);
}

// Operands tensor, found_inf, inv_scale.
void expand_unscale(ExpandContext& c) {
  Ex x = c.computed(0);
  Dims dims = x.type().dims;
  Ex bad = (!x.unary(Prim::kIsFinite)).reduce(Prim::kReduceOr, all_dims(dims.size())).reshape({});
  Ex found = c.raw(1);
  c.set(0, x * c.raw(2).reshape({}).to(x.dtype()));
  c.set(1, select(bad, 1.0, found.reshape({})));
}

// Operands scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval.
void expand_update_scale(ExpandContext& c) {
  Ex scale = c.raw(0).reshape({});
  Ex tracker = c.raw(1).reshape({});
  Ex found = c.raw(2).reshape({}) != 0.0; // found_inf is a sum over optimizers and devices
  Ex successes = tracker + 1.0;
  Ex grows = successes == c.raw(5).to(tracker.dtype());
  Ex grown = scale * c.raw(3).to(scale.dtype());
  Ex kept = select(grows & grown.unary(Prim::kIsFinite), grown, scale);
  c.set(0, select(found, scale * c.raw(4).to(scale.dtype()), kept));
  c.set(1, select(found | grows, 0.0, successes));
}

// The first operands are written; missing states of an optimizer are left out.
template <size_t Written>
void like_first(InferContext& c) {
  for (size_t i = 0; i < Written; ++i) {
    if (c.has(i)) {
      c.add_result(c.operand(i).dtype, c.operand(i).dims);
    }
  }
}

#define UPDATE(NAME, INFER, EXPAND) \
  {.name = "xla::" NAME, .kind = OpKind::kComposite, .infer = INFER, .expand = EXPAND, .traits = kOwnKernel}

constinit const Op kRows[] = {
    UPDATE("fused_adam", like_first<5>, expand_adam<false>),
    UPDATE("fused_adamw", like_first<5>, expand_adam<true>),
    UPDATE("fused_sgd", like_first<3>, expand_sgd),
    UPDATE("fused_adagrad", like_first<3>, expand_adagrad),
    UPDATE("unscale", like_first<2>, expand_unscale),
    UPDATE("update_scale", like_first<2>, expand_update_scale),
};

} // namespace

std::span<const Op> optimizer_ops() {
  return kRows;
}

} // namespace torch_xla
