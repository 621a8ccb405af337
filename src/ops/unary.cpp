// Rows of one tensor operand, element by element.
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// EXPRESSION is over x.
#define UNARY(NAME, RULE, TRAITS, EXPRESSION) POINTWISE(NAME, RULE, TRAITS, [](Ex x) -> Ex { return EXPRESSION; }(a[0]))
#define FLOAT(NAME, TRAITS, EXPRESSION) UNARY(NAME, kPromoteFloat, TRAITS, EXPRESSION)
#define SAME(NAME, TRAITS, EXPRESSION) UNARY(NAME, kPromote, TRAITS, EXPRESSION)
#define TEST(NAME, TRAITS, EXPRESSION) \
  POINTWISE(NAME, kBool, TRAITS, [](Ex x) -> Ex { return EXPRESSION; }(a.raw(0).to(compute_type(a.raw(0).dtype()))))

constexpr double kLn2 = 0.693147180559945309417;
constexpr double kLn10 = 2.302585092994045684;
constexpr double kPi = 3.14159265358979323846;

Ex sign(Ex x) {
  if (x.dtype() == DType::Bool) {
    return x;
  }
  Ex positive = select(x > 0.0, x.constant(1), 0.0); // NaN gives 0, as ATen's does
  return is_unsigned(x.dtype()) ? positive : select(x < 0.0, x.constant(-1), positive);
}

// For x from 2^28 on: 1 is lost against x^2, and x^2 may overflow.
Ex asinh(Ex x) {
  Ex u = abs(x);
  Ex near = log1p(u + sq(u) / (sqrt(sq(u) + 1.0) + 1.0));
  Ex y = select(u > 268435456.0, log(u) + kLn2, near);
  return select(x < 0.0, -y, y);
}

Ex acosh(Ex x) {
  Ex t = x - 1.0;
  Ex near = log1p(t + sqrt(t * 2.0 + sq(t)));
  return select(x < 1.0, kNaN, select(x > 268435456.0, log(x) + kLn2, near));
}

Ex nan_to_num(const BodyArgs& a) {
  Ex x = a[0];
  if (!is_float(a.compute())) {
    return x;
  }
  double limit = largest_value(a.result().dtype);
  Ex finite = select(is_nan(x), attr_double(a.attr(0), 0), x);
  finite = select(finite == kInfinity, attr_double(a.attr(1), limit), finite);
  return select(finite == -kInfinity, attr_double(a.attr(2), -limit), finite);
}

Ex logit(const BodyArgs& a) {
  Ex x = a[0];
  double eps = attr_double(a.attr(0), -1);
  Ex z = eps < 0 ? x : select(x < eps, eps, select(x > 1 - eps, 1 - eps, x));
  return log(z / (1.0 - z));
}

Ex round_decimals(const BodyArgs& a) {
  Ex x = a[0];
  double decimals = attr_double(a.attr(0), 0);
  double scale = std::pow(10.0, std::abs(decimals));
  if (!is_float(a.compute())) {
    return x;
  }
  return decimals < 0 ? (x / scale).unary(Prim::kRoundEven) * scale : (x * scale).unary(Prim::kRoundEven) / scale;
}

Ex sinc(Ex x) {
  Ex y = x * kPi;
  return select(x == 0.0, 1.0, y.unary(Prim::kSin) / y);
}

constinit const Op kRows[] = {
    UNARY("abs", kPromote, kNoBool | kComplex, abs(x)),
    UNARY("neg", kPromote, kNoBoolOperand | kComplex, -x),
    SAME("sign", kNoTraits, sign(x)),
    SAME("sgn", kComplex, sign(x)),
    UNARY("ceil", kPromote, kNoBool, float_only(x, Prim::kCeil)),
    UNARY("floor", kPromote, kNoBool, float_only(x, Prim::kFloor)),
    UNARY("trunc", kPromote, kNoBool, float_only(x, Prim::kTrunc)),
    UNARY("round", kPromote, kNoBool, float_only(x, Prim::kRoundEven)),
    UNARY("frac", kPromote, kFloatOnly, x - float_only(x, Prim::kTrunc)),
    UNARY("bitwise_not", kPromote, kNoFloat, x.unary(Prim::kNot)),
    FLOAT("exp", kComplex, exp(x)),
    FLOAT("exp2", kComplex, pow(x.constant(2), x)),
    FLOAT("expm1", kComplex, expm1(x)),
    FLOAT("log", kComplex, log(x)),
    FLOAT("log2", kComplex, log(x) / kLn2),
    FLOAT("log10", kComplex, log(x) / kLn10),
    FLOAT("log1p", kComplex, log1p(x)),
    FLOAT("sqrt", kComplex, sqrt(x)),
    FLOAT("rsqrt", kComplex, 1.0 / sqrt(x)), // correctly rounded, as ATen's
    FLOAT("reciprocal", kComplex, 1.0 / x),
    FLOAT("sin", kComplex, x.unary(Prim::kSin)),
    FLOAT("cos", kComplex, cos(x)),
    FLOAT("tan", kComplex, tan(x)),
    FLOAT("asin", kComplex, x.unary(Prim::kAsin)),
    FLOAT("acos", kComplex, x.unary(Prim::kAcos)),
    FLOAT("atan", kComplex, x.unary(Prim::kAtan)),
    FLOAT("sinh", kComplex, x.unary(Prim::kSinh)),
    FLOAT("cosh", kComplex, x.unary(Prim::kCosh)),
    FLOAT("tanh", kComplex, tanh(x)),
    FLOAT("asinh", kComplex, asinh(x)),
    FLOAT("acosh", kComplex, acosh(x)),
    FLOAT("atanh", kComplex, (log1p(x) - log1p(-x)) * 0.5),
    FLOAT("erf", kNoTraits, erf(x)),
    FLOAT("erfc", kNoTraits, x.unary(Prim::kErfc)),
    FLOAT("sigmoid", kComplex, logistic(x)),
    FLOAT("sinc", kComplex, sinc(x)),
    FLOAT("deg2rad", kNoTraits, x*(kPi / 180)),
    FLOAT("rad2deg", kNoTraits, x * (180 / kPi)),
    TEST("logical_not", kComplex, !truth(x)),
    TEST("isnan", kComplex, is_nan(x)),
    TEST("isinf", kComplex, is_float(x.dtype()) ? abs(x) == kInfinity : x != x),
    TEST("isposinf", kNoTraits, is_float(x.dtype()) ? x == kInfinity : x != x),
    TEST("isneginf", kNoTraits, is_float(x.dtype()) ? x == -kInfinity : x != x),
    POINTWISE("nan_to_num", kSelf, kNoTraits, nan_to_num(a)),
    POINTWISE("logit", kPromoteFloat, kNoTraits, logit(a)),
    POINTWISE("round.decimals", kSelf, kFloatOnly, round_decimals(a)),
    // Special functions that have no primitive.
    LIBRARY("erfinv", like_float_operand<0>, .layout = ResultLayout::kOfOperands),
    LIBRARY("lgamma", like_float_operand<0>, .layout = ResultLayout::kOfOperands),
    LIBRARY("digamma", like_float_operand<0>, .layout = ResultLayout::kOfOperands),
    LIBRARY("i0", like_float_operand<0>, .layout = ResultLayout::kOfOperands),
};

} // namespace

std::span<const Op> unary_ops() {
  return kRows;
}

} // namespace torch_xla
