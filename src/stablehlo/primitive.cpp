// Primitives: most are one operation of StableHLO; for cases that it leaves open, the CPU engine's choice is written out.
#include "stablehlo/primitive.h"

#include "core/errors.h"
#include "stablehlo/elementary.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

// ---- Unary ----

Hlo identity(Hlo x) {
  return x;
}

// torch.sign: NaN gives 0.
Hlo sign(Hlo x) {
  if (is_float(x.dtype())) {
    return select(is_nan(x), constant_like(x, 0), unary("sign", x));
  }
  return x.dtype() == DType::U8 ? convert(x != 0, DType::U8) : unary("sign", x);
}

Hlo is_finite(Hlo x) {
  return is_float(x.dtype()) ? x.text().op("is_finite", {x}, {}, {DType::Bool, x.dims()}) : x == x;
}

Hlo trunc(Hlo x) {
  return select(x < 0, unary("ceil", x), unary("floor", x));
}

Hlo negate(Hlo x) {
  return x.dtype() == DType::U8 ? constant_like(x, 0) - x : -x;
}

struct UnaryRow {
  Prim prim;
  const char* name; // of the operation on floats, or null
  Hlo (*of_floats)(Hlo x) = nullptr;
  Hlo (*of_integers)(Hlo x) = nullptr; // Bool included
};

constexpr UnaryRow kUnary[] = {
    {Prim::kNeg, "negate", nullptr, negate},
    {Prim::kAbs, "abs", nullptr, nullptr},
    {Prim::kSign, nullptr, sign, sign},
    {Prim::kNot, "not"},
    {Prim::kExp, "exponential"},
    {Prim::kExpm1, "exponential_minus_one"},
    {Prim::kLog, "log"},
    {Prim::kLog1p, "log_plus_one"},
    {Prim::kSqrt, "sqrt"},
    {Prim::kRsqrt, "rsqrt"},
    {Prim::kSin, "sine"},
    {Prim::kCos, "cosine"},
    {Prim::kTan, "tan"},
    {Prim::kTanh, "tanh"},
    {Prim::kAsin, nullptr, asin},
    {Prim::kAcos, nullptr, acos},
    {Prim::kAtan, nullptr, atan},
    {Prim::kSinh, nullptr, sinh},
    {Prim::kCosh, nullptr, cosh},
    {Prim::kErf, nullptr, erf},
    {Prim::kErfc, "chlo.erfc"},
    {Prim::kGelu, nullptr, gelu},
    {Prim::kLogistic, "logistic"},
    {Prim::kCeil, "ceil", nullptr, identity},
    {Prim::kFloor, "floor", nullptr, identity},
    {Prim::kRoundEven, "round_nearest_even", nullptr, identity},
    {Prim::kTrunc, nullptr, trunc, identity},
    {Prim::kIsFinite, nullptr, is_finite, is_finite},
    {Prim::kIsNan, nullptr, is_nan, is_nan},
};

Hlo write_unary(Prim prim, const Hlo& x) {
  const UnaryRow& row = kUnary[static_cast<int>(prim) - static_cast<int>(Prim::kNeg)];
  XLA_ASSERT(row.prim == prim, "the table of unary primitives is out of order at ", prim_name(prim));
  auto special = is_float(x.dtype()) ? row.of_floats : row.of_integers;
  bool is_unsigned = x.dtype() == DType::U8 || x.dtype() == DType::Bool;
  if (prim == Prim::kAbs && is_unsigned) {
    return x;
  }
  return special ? special(x) : unary(row.name, x);
}

// ---- Binary ----

// By zero: 0. XLA itself wraps around: the most negative number by -1 is that number, with the remainder 0.
Hlo integer_quotient(const char* name, const Hlo& a, const Hlo& b) {
  Hlo by_zero = b == 0;
  return select(by_zero, constant_like(b, 0), binary(name, a, select(by_zero, constant_like(b, 1), b)));
}

// By squaring, written out: XLA's own power takes few bits of an exponent.
Hlo natural_power(Hlo base, const Hlo& exponent) {
  int bits = static_cast<int>(item_size(base.dtype())) * 8 - (base.dtype() == DType::U8 ? 0 : 1);
  Hlo result = constant_like(base, 1);
  for (int i = 0; i < bits; ++i) {
    Hlo bit = (exponent & constant_like(exponent, static_cast<double>(uint64_t{1} << i))) != 0;
    result = select(bit, result * base, result);
    base = base * base;
  }
  return result;
}

// Only 1 and -1 have integer powers with a negative exponent; the others are rounded to 0.
Hlo integer_power(const Hlo& base, const Hlo& exponent) {
  if (base.dtype() == DType::U8) {
    return natural_power(base, exponent);
  }
  Hlo odd = (exponent & constant_like(exponent, 1)) != 0;
  Hlo of_minus_one = select(odd, constant_like(exponent, -1), constant_like(exponent, 1));
  Hlo small = select(base == 1, constant_like(base, 1), select(base == -1, of_minus_one, constant_like(base, 0)));
  Hlo negative = exponent < 0;
  return select(negative, small, natural_power(base, exponent));
}

// Shifts by the width or more, and by negative counts, leave 0 or the sign.
Hlo shift(Prim prim, const Hlo& a, const Hlo& count) {
  bool keeps_sign = prim == Prim::kShrA && a.dtype() != DType::U8;
  double bits = static_cast<double>(item_size(a.dtype())) * 8;
  Hlo outside = a.dtype() == DType::U8 ? count >= bits : (count >= bits) | (count < 0);
  Hlo amount = select(outside, constant_like(count, keeps_sign ? bits - 1 : 0), count);
  const char* name = prim == Prim::kShrA && !keeps_sign ? "shift_right_logical" : prim_name(prim);
  Hlo shifted = binary(name, a, amount);
  return keeps_sign ? shifted : select(outside, shifted.text().constant(0, shifted.type()), shifted);
}

Hlo write_integer_binary(Prim prim, const Hlo& a, const Hlo& b) {
  switch (prim) {
    case Prim::kDiv:
    case Prim::kRem:
      return integer_quotient(prim_name(prim), a, b);
    case Prim::kPow:
      return integer_power(a, b);
    case Prim::kShl:
    case Prim::kShrA:
    case Prim::kShrL:
      return shift(prim, a, b);
    default:
      return binary(prim_name(prim), a, b);
  }
}

// The sum of Bools is `or`, the product `and`.
const char* bool_name(Prim prim) {
  switch (prim) {
    case Prim::kAdd:
    case Prim::kMax:
      return "or";
    case Prim::kMul:
    case Prim::kMin:
      return "and";
    default:
      return prim_name(prim);
  }
}

Hlo write_binary(Prim prim, const Hlo& a, const Hlo& b) {
  if (is_compare(prim)) {
    constexpr const char* kDirections[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
    return compare(kDirections[static_cast<int>(prim) - static_cast<int>(Prim::kEq)], a, b);
  }
  if (a.dtype() == DType::Bool) {
    return binary(bool_name(prim), a, b);
  }
  if (prim == Prim::kMax || prim == Prim::kMin) {
    return extremum(prim == Prim::kMax, a, b);
  }
  return is_float(a.dtype()) ? binary(prim_name(prim), a, b) : write_integer_binary(prim, a, b);
}

// ---- Reductions ----

struct ReduceRow {
  Prim prim;
  Prim combine;
  Hlo (*init)(Text& text, DType t);
};

constexpr ReduceRow kReduce[] = {
    {Prim::kReduceSum, Prim::kAdd, number<0>},
    {Prim::kReduceProd, Prim::kMul, number<1>},
    {Prim::kReduceMax, Prim::kMax, lowest},
    {Prim::kReduceMin, Prim::kMin, highest},
    {Prim::kReduceAnd,
     Prim::kAnd,
     [](Text& text, DType t) {
       return text.constant_int(t == DType::Bool ? 1 : t == DType::U8 ? 255 : -1, {t, {}});
     }},
    {Prim::kReduceOr, Prim::kOr, number<0>},
};

Hlo write_reduce(const Node& node, const Hlo& x, const Type& result) {
  const ReduceRow& row = kReduce[static_cast<int>(node.op->prim) - static_cast<int>(Prim::kReduceSum)];
  if (row.combine == Prim::kMax || row.combine == Prim::kMin) {
    const Dims& dims = std::get<Dims>(node.attrs[0]);
    return reshape(reduce_extremum(row.combine == Prim::kMax, x, row.init(x.text(), x.dtype()), dims), result.dims);
  }
  Combine combine = [&](const Hlos& a, const Hlos& b) { return Hlos{write_binary(row.combine, a[0], b[0])}; };
  Dims dims = std::get<Dims>(node.attrs[0]);
  std::optional<Hlo> split = x.rank() == 2 && dims == Dims{0} ? with_split_rows(x) : std::nullopt; // of a bias's gradient
  Hlo reduced = reduce({split ? *split : x}, {row.init(x.text(), x.dtype())}, split ? all_but_last(*split) : dims, combine)[0];
  return reshape(reduced, result.dims);
}

// ---- The rest ----

Hlo write_constant(Text& text, const Node& node, const Type& result) {
  if (auto* number = std::get_if<double>(&node.attrs[0])) {
    return text.constant(*number, result);
  }
  return text.constant_int(std::get<int64_t>(node.attrs[0]), result);
}

Hlo write_iota(Text& text, const Node& node, const Type& result) {
  auto dim = static_cast<size_t>(std::get<int64_t>(node.attrs[0]));
  DType dtype = result.dtype == DType::Bool ? DType::I32 : result.dtype;
  return convert(iota(text, result.dims, dim, dtype), result.dtype);
}

} // namespace

Hlo write_primitive(Text& text, const Node& node, const Hlos& operands, const Type& result) {
  Prim prim = node.op->prim;
  if (is_unary(prim)) {
    return write_unary(prim, operands[0]);
  }
  if (is_binary(prim)) {
    return write_binary(prim, operands[0], operands[1]);
  }
  if (is_reduce(prim)) {
    return write_reduce(node, operands[0], result);
  }
  switch (prim) {
    case Prim::kConstant:
      return write_constant(text, node, result);
    case Prim::kIota:
      return write_iota(text, node, result);
    case Prim::kConvert:
      return broadcast(convert(operands[0], result.dtype), result.dims);
    case Prim::kSelect:
      return select(operands[0], operands[1], operands[2]);
    default:
      throw InternalError(str("no StableHLO form of the primitive ", prim_name(prim)));
  }
}

} // namespace torch_xla::stablehlo
