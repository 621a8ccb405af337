// Pointwise rows of two or more operands: arithmetic, comparisons, logic, selection.
#include "ir/promote.h"
#include "ops/math.h"
#include "ops/row.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

#define SAME(NAME, TRAITS, EXPRESSION) POINTWISE(NAME, kPromote, TRAITS, EXPRESSION)
#define FLOAT(NAME, TRAITS, EXPRESSION) POINTWISE(NAME, kPromoteFloat, TRAITS, EXPRESSION)
#define COMPARE(NAME, TRAITS, OPERATOR)                                            \
  POINTWISE(NAME ".Tensor", kCompare, TRAITS, a.rounded(0) OPERATOR a.rounded(1)), \
      POINTWISE(NAME ".Scalar", kCompare, TRAITS, a.rounded(0) OPERATOR a.rounded(1))
#define LOGIC(NAME, OPERATOR) POINTWISE(NAME, kBool, kComplex, truth(a.raw(0)) OPERATOR truth(a.raw(1)))
#define BITS(NAME, OPERATOR) \
  POINTWISE(NAME ".Tensor", kPromote, kNoFloat, a[0] OPERATOR a[1]), POINTWISE(NAME ".Scalar", kPromote, kNoFloat, a[0] OPERATOR a[1])
#define SHIFT(NAME, OF_NUMBER, FUNCTION)                                         \
  POINTWISE(NAME ".Tensor", kPromote, kNoFloat | kNoBool, FUNCTION(a[0], a[1])), \
      POINTWISE(NAME "." OF_NUMBER, kPromote, kNoFloat | kNoBool, FUNCTION(a[0], a[1]))

bool is_bool(const BodyArgs& a) {
  return a.compute() == DType::Bool;
}

// Operand i as in ATen's kernels that compute with numbers in float32: tensors are rounded to the common type.
Ex exact_number(const BodyArgs& a, size_t i) {
  return a.raw(i).type().numel() == 1 ? a[i] : a.rounded(i);
}

// x * alpha; alpha is nearly always 1, and for a Bool result only whether it is zero counts.
Ex scaled(const BodyArgs& a, size_t x, size_t alpha) {
  if (!a.has(alpha)) {
    return a.rounded(x);
  }
  return is_bool(a) ? a[x] & a[alpha] : a.rounded(x) * a.rounded(alpha);
}

Ex add(const BodyArgs& a) {
  return is_bool(a) ? a[0] | scaled(a, 1, 2) : a.rounded(0) + scaled(a, 1, 2);
}

Ex mul(const BodyArgs& a) {
  return is_bool(a) ? a[0] & a[1] : a.rounded(0) * exact_number(a, 1);
}

Ex maximum(const BodyArgs& a) {
  return is_bool(a) ? a[0] | a[1] : max(a[0], a[1]);
}

Ex minimum(const BodyArgs& a) {
  return is_bool(a) ? a[0] & a[1] : min(a[0], a[1]);
}

// The number that is not NaN.
Ex fmax(const BodyArgs& a) {
  return is_float(a.compute()) ? select(is_nan(a[0]), a[1], select(is_nan(a[1]), a[0], max(a[0], a[1]))) : maximum(a);
}

Ex fmin(const BodyArgs& a) {
  return is_float(a.compute()) ? select(is_nan(a[0]), a[1], select(is_nan(a[1]), a[0], min(a[0], a[1]))) : minimum(a);
}

// Integer division by zero would trap; ATen raises an error for it.
Ex divisor(Ex y) {
  return is_float(y.dtype()) ? y : select(y == 0.0, 1.0, y);
}

Ex differ_in_sign(Ex x, Ex y) {
  return (x < 0.0) ^ (y < 0.0);
}

Ex sign_bit(Ex x) {
  return (x < 0.0) | ((x == 0.0) & (1.0 / x < 0.0));
}

Ex copysign(Ex x, Ex y) {
  Ex size = abs(x);
  return select(sign_bit(y), -size, size);
}

Ex floor_divide_int(Ex x, Ex y) {
  Ex d = divisor(y);
  Ex q = x / d;
  if (is_unsigned(x.dtype())) {
    return q;
  }
  return select((rem(x, d) != 0.0) & differ_in_sign(x, d), q - 1.0, q);
}

// Python's //: see c10::div_floor_floating.
Ex floor_divide_float(Ex x, Ex y) {
  Ex r = rem(x, y);
  Ex q = (x - r) / y;
  q = select((r != 0.0) & differ_in_sign(r, y), q - 1.0, q);
  Ex whole = floor(q);
  whole = select(q - whole > 0.5, whole + 1.0, whole);
  Ex quotient = x / y;
  return select(y == 0.0, quotient, select(q != 0.0, whole, copysign(q.constant(0), quotient)));
}

Ex floor_divide(const BodyArgs& a) {
  return is_float(a.compute()) ? floor_divide_float(a.rounded(0), exact_number(a, 1)) : floor_divide_int(a[0], a[1]);
}

bool names_rounding(std::span<const double>, const Attrs& attrs) {
  bool none = std::holds_alternative<std::monostate>(attrs[0]);
  return none || attr_is(attrs[0], "trunc") || attr_is(attrs[0], "floor");
}

Ex div_mode(const BodyArgs& a) {
  if (attr_is(a.attr(0), "floor")) {
    return floor_divide(a);
  }
  Ex q = a.rounded(0) / divisor(exact_number(a, 1));
  // ATen rounds the quotient of tensors to their type before it truncates.
  bool rounds = a.raw(1).type().numel() > 1;
  return !is_float(a.compute()) ? q : trunc(rounds ? a.rounded(q) : q);
}

// Python's %: the sign of the divisor.
Ex remainder(const BodyArgs& a) {
  Ex y = divisor(a.rounded(1));
  Ex r = rem(a.rounded(0), y);
  return is_unsigned(a.compute()) ? r : select((r != 0.0) & differ_in_sign(r, y), r + y, r);
}

Ex pow(const BodyArgs& a) {
  if (is_bool(a)) {
    return a[0] | !a[1];
  }
  return pow(a.rounded(0), a.rounded(1));
}

// x * 2^n. Of a float and whole n in three steps, as 2^n may overflow when the product does not; the largest step down is last, so only
// that step can round.
Ex ldexp(const BodyArgs& a) {
  Ex x = a.rounded(0);
  Ex exponent = a.raw(1);
  if (is_float(exponent.dtype()) || !is_float(a.raw(0).dtype())) {
    // ATen's 2 is a 0-d tensor of the type of x, or a number if that is the default type.
    const bool promotes = exponent.type().dims.empty() && a.raw(0).dtype() != DType::F32;
    const DType power = promotes ? promote_types(a.raw(0).dtype(), exponent.dtype()) : exponent.dtype();
    Ex y = is_float(exponent.dtype()) ? exponent.to(power) : a[1];
    return x * pow(y.constant(2), y).to(x.dtype());
  }
  double limit = x.dtype() == DType::F64 ? 1022 : 126;
  Ex n = min(max(exponent.to(DType::I64), -3 * limit), 3 * limit);
  Ex last = min(max(n, -limit), limit);
  Ex middle = min(max(n - last, -limit), limit);
  for (Ex step : {n - last - middle, middle, last}) {
    x = x * pow(x.constant(2), step.to(x.dtype()));
  }
  return x;
}

double type_bits(Ex x) {
  return static_cast<double>(item_size(x.dtype()) * 8);
}

Ex out_of_range(Ex shift) {
  Ex large = shift >= type_bits(shift);
  return is_unsigned(shift.dtype()) ? large : large | (shift < 0.0);
}

Ex shift_left(Ex x, Ex shift) {
  Ex out = out_of_range(shift);
  return select(out, 0.0, x.binary(Prim::kShl, select(out, 0.0, shift)));
}

Ex shift_right(Ex x, Ex shift) {
  Prim prim = is_unsigned(x.dtype()) ? Prim::kShrL : Prim::kShrA;
  Ex out = out_of_range(shift);
  Ex result = x.binary(prim, select(out, type_bits(shift) - 1, shift));
  return is_unsigned(x.dtype()) ? select(out, 0.0, result) : result;
}

Ex lerp(Ex x, Ex end, Ex weight) {
  Ex d = end - x;
  return select(abs(weight) < 0.5, x + weight * d, end - d * (1.0 - weight));
}

Ex xlogy(const BodyArgs& a) {
  Ex x = a.rounded(0);
  Ex y = a.rounded(1);
  return select(is_nan(y), y, select(x == 0.0, 0.0, x * a.rounded(log(y))));
}

Ex logaddexp(Ex x, Ex y) {
  Ex m = max(x, y);
  Ex sum = m + log1p(exp(-abs(x - y)));
  return select((x == y) & (abs(x) == kInfinity), x, sum);
}

Ex hypot(Ex x, Ex y) {
  Ex large = max(abs(x), abs(y));
  Ex small = min(abs(x), abs(y));
  Ex ratio = select(large == 0.0, 0.0, small / large);
  return select((abs(x) == kInfinity) | (abs(y) == kInfinity), kInfinity, large * sqrt(sq(ratio) + 1.0));
}

Ex heaviside(Ex x, Ex at_zero) {
  return select(x == 0.0, at_zero, select(x > 0.0, x.constant(1), 0.0));
}

Ex clamp(const BodyArgs& a) {
  Ex x = a[0];
  if (a.has(1)) {
    x = max(x, a[1]);
  }
  return a.has(2) ? min(x, a[2]) : x;
}

constinit const Op kRows[] = {
    POINTWISE_IN(kOfOperands, kAdd, "add.Tensor", kPromote, kUnitAlpha | kComplex, add(a)),
    POINTWISE("sub.Tensor", kPromote, kNoBoolOperand | kUnitAlpha | kComplex, a.rounded(0) - scaled(a, 1, 2)),
    POINTWISE("rsub.Scalar", kPromote, kNoBoolOperand | kUnitAlpha | kComplex, a.rounded(1) - scaled(a, 0, 2)),
    SAME("mul.Tensor", kComplex, mul(a)),
    SAME("mul.Scalar", kComplex, mul(a)),
    FLOAT("div.Tensor", kComplex, a.rounded(0) / exact_number(a, 1)),
    FLOAT("div.Scalar", kComplex, a.rounded(0) / exact_number(a, 1)),
    POINTWISE("div.Tensor_mode", kPromote, kDivides | kNoBool, div_mode(a), .takes = names_rounding, .if_none = "aten::div.Tensor"),
    POINTWISE(
        "div.Scalar_mode",
        kPromote,
        kDivides | kNoBool,
        div_mode(a),
        .takes = names_rounding,
        .if_none = "aten::div.Scalar",
        .of_tensors = "aten::div.Tensor_mode"),
    POINTWISE("floor_divide", kPromote, kDivides | kNoBool, floor_divide(a)),
    POINTWISE("floor_divide.Scalar", kPromote, kDivides | kNoBool, floor_divide(a), .of_tensors = "aten::floor_divide"),
    POINTWISE("remainder.Tensor", kPromote, kDivides | kNoBool, remainder(a)),
    POINTWISE("remainder.Scalar", kPromote, kDivides | kNoBool, remainder(a), .of_tensors = "aten::remainder.Tensor"),
    POINTWISE("remainder.Scalar_Tensor", kPromote, kDivides | kNoBool, remainder(a), .of_tensors = "aten::remainder.Tensor"),
    POINTWISE("fmod.Tensor", kPromote, kDivides | kNoBool, rem(a.rounded(0), divisor(a.rounded(1)))),
    POINTWISE("fmod.Scalar", kPromote, kDivides | kNoBool, rem(a.rounded(0), divisor(a.rounded(1))), .of_tensors = "aten::fmod.Tensor"),
    SAME("maximum", kNoTraits, maximum(a)),
    SAME("minimum", kNoTraits, minimum(a)),
    SAME("fmax", kNoTraits, fmax(a)),
    SAME("fmin", kNoTraits, fmin(a)),
    FLOAT("atan2", kNoTraits, a.rounded(0).binary(Prim::kAtan2, a.rounded(1))),
    POINTWISE("hypot", kPromote, kFloatOnly, hypot(a.rounded(0), a.rounded(1))),
    FLOAT("copysign.Tensor", kNoTraits, copysign(a[0], a[1])),
    FLOAT("copysign.Scalar", kNoTraits, copysign(a[0], a[1])),
    POINTWISE("heaviside", kPromote, kSameDtype, heaviside(a[0], a[1])),
    FLOAT("xlogy.Tensor", kNoTraits, xlogy(a)),
    FLOAT("xlogy.Scalar_Self", kNoTraits, xlogy(a)),
    FLOAT("xlogy.Scalar_Other", kNoTraits, xlogy(a)),
    POINTWISE("logaddexp", kPromote, kFloatOnly | kComplex, logaddexp(a[0], a[1])),
    POINTWISE("pow.Tensor_Tensor", kPromote, kNoBool | kComplex, pow(a)),
    POINTWISE_IN(kRowMajor, kNone, "pow.Scalar", kPromote, kNoBool | kComplex, pow(a)),
    FLOAT("ldexp.Tensor", kNoBoolOperand, ldexp(a)),
    COMPARE("eq", kComplex, ==),
    COMPARE("ne", kComplex, !=),
    COMPARE("lt", kNoTraits, <),
    COMPARE("le", kNoTraits, <=),
    COMPARE("gt", kNoTraits, >),
    COMPARE("ge", kNoTraits, >=),
    LOGIC("logical_and", &),
    LOGIC("logical_or", |),
    LOGIC("logical_xor", ^),
    BITS("bitwise_and", &),
    BITS("bitwise_or", |),
    BITS("bitwise_xor", ^),
    SHIFT("bitwise_left_shift", "Tensor_Scalar", shift_left),
    SHIFT("bitwise_right_shift", "Tensor_Scalar", shift_right),
    SHIFT("__lshift__", "Scalar", shift_left),
    SHIFT("__rshift__", "Scalar", shift_right),
    POINTWISE("where.self", kTail, kComplex, select(truth(a.raw(0)), a[1], a[2])),
    CALL("_add_relu.Tensor", kIntegers | kFloats),
    POINTWISE("lerp.Tensor", kSelf, kFloatOnly | kSameDtype | kComplex, lerp(a[0], a[1], a[2])),
    POINTWISE("lerp.Scalar", kSelf, kFloatOnly | kSameDtype | kNumbersFit | kComplex, lerp(a[0], a[1], a[2])),
    POINTWISE("addcmul", kPromote, kNoBool | kNumbersFit | kComplex, a.rounded(0) + a[3] * a.rounded(1) * a.rounded(2)),
    POINTWISE("addcdiv", kPromote, kFloatOnly | kNumbersFit | kComplex, a.rounded(0) + a[3] * a.rounded(1) / a.rounded(2)),
    POINTWISE_IN(kRowMajor, kNone, "masked_fill.Scalar", kSelf, kFills | kNumbersFit | kComplex, select(truth(a.raw(1)), a[2], a[0])),
    POINTWISE_IN(kRowMajor, kNone, "masked_fill.Tensor", kSelf, kFills | kNumbersFit | kComplex, select(truth(a.raw(1)), a[2], a[0])),
    POINTWISE("clamp", kPromote, kNoBool | kNumbersFit, clamp(a)),
    POINTWISE("clamp.Tensor", kPromote, kNoBool, clamp(a)),
    POINTWISE("clamp_min", kPromote, kNoBool | kNumbersFit, max(a[0], a[1])),
    POINTWISE("clamp_min.Tensor", kPromote, kNoBool, max(a[0], a[1])),
    POINTWISE("clamp_max", kPromote, kNoBool | kNumbersFit, min(a[0], a[1])),
    POINTWISE("clamp_max.Tensor", kPromote, kNoBool, min(a[0], a[1])),
};

} // namespace

std::span<const Op> binary_ops() {
  return kRows;
}

} // namespace torch_xla
