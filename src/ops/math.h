// Functions over expressions that the rows of several families share, by their mathematical names.
#pragma once

#include <cmath>

#include "ir/builder.h"
#include "ops/registry.h"
#include "ops/rules.h"

namespace torch_xla {

constexpr double kInfinity = __builtin_inf();
constexpr double kNaN = __builtin_nan("");

inline Ex exp(Ex x) {
  return x.unary(Prim::kExp);
}
inline Ex expm1(Ex x) {
  return x.unary(Prim::kExpm1);
}
inline Ex log(Ex x) {
  return x.unary(Prim::kLog);
}
inline Ex log1p(Ex x) {
  return x.unary(Prim::kLog1p);
}
inline Ex sqrt(Ex x) {
  return x.unary(Prim::kSqrt);
}
inline Ex rsqrt(Ex x) {
  return x.unary(Prim::kRsqrt);
}
inline Ex tanh(Ex x) {
  return x.unary(Prim::kTanh);
}
inline Ex erf(Ex x) {
  return x.unary(Prim::kErf);
}
inline Ex cos(Ex x) {
  return x.unary(Prim::kCos);
}
inline Ex tan(Ex x) {
  return x.unary(Prim::kTan);
}
inline Ex floor(Ex x) {
  return x.unary(Prim::kFloor);
}
inline Ex trunc(Ex x) {
  return x.unary(Prim::kTrunc);
}
inline Ex logistic(Ex x) {
  return x.unary(Prim::kLogistic);
}
inline Ex pow(Ex x, Ex y) {
  return x.binary(Prim::kPow, y);
}
// Remainder with the sign of the dividend.
inline Ex rem(Ex x, Ex y) {
  return x.binary(Prim::kRem, y);
}
inline Ex max(Ex a, double b) {
  return max(a, a.constant(b));
}
inline Ex min(Ex a, double b) {
  return min(a, a.constant(b));
}
inline Ex sq(Ex x) {
  return x * x;
}
inline bool is_unsigned(DType t) {
  return t == DType::U8 || t == DType::Bool;
}
inline Ex abs(Ex x) {
  return is_unsigned(x.dtype()) ? x : x.unary(Prim::kAbs);
}
inline Ex is_nan(Ex x) {
  return is_float(x.dtype()) ? x.unary(Prim::kIsNan) : x != x;
}
// x != 0, so NaN is true.
inline Ex truth(Ex x) {
  return x.dtype() == DType::Bool ? x : x != 0.0;
}
// prim(x) for floats, x itself for integers.
inline Ex float_only(Ex x, Prim prim) {
  return is_float(x.dtype()) ? x.unary(prim) : x;
}

// Reductions, which keep the reduced dims as 1; Bool has its own primitives.
inline Ex reduce_sum(Ex x, const Dims& dims) {
  return x.reduce(Prim::kReduceSum, dims);
}
inline Ex mean_of(Ex x, const Dims& dims) {
  return reduce_sum(x, dims) / static_cast<double>(reduced_count(x.type().dims, dims));
}
inline Ex reduce_max(Ex x, const Dims& dims) {
  return x.reduce(x.dtype() == DType::Bool ? Prim::kReduceOr : Prim::kReduceMax, dims);
}
inline Ex reduce_min(Ex x, const Dims& dims) {
  return x.reduce(x.dtype() == DType::Bool ? Prim::kReduceAnd : Prim::kReduceMin, dims);
}

// [B, n, k] x [B, k, m], by the library. For 16-bit floats the result is in float32, unless `rounds`.
inline Ex batch_product(Ex a, Ex b, bool rounds = false) {
  bool widens = is_reduced_float(a.dtype()) && !rounds;
  Type result{widens ? DType::F32 : a.dtype(), {a.type().dims[0], a.type().dims[1], b.type().dims[2]}};
  ValueId operands[] = {a.id(), b.id()};
  Attrs attrs = widens ? Attrs{static_cast<int64_t>(result.dtype)} : Attrs{};
  return {&a.b(), a.b().library(get_op("aten::bmm"), operands, std::move(attrs), {&result, 1})};
}

inline double attr_double(const Attr& attr, double otherwise) {
  if (auto* value = std::get_if<double>(&attr)) {
    return *value;
  }
  if (auto* value = std::get_if<int64_t>(&attr)) {
    return static_cast<double>(*value);
  }
  if (auto* value = std::get_if<bool>(&attr)) {
    return *value;
  }
  return otherwise;
}
inline bool attr_bool(const Attr& attr) {
  return attr_double(attr, 0) != 0;
}
inline bool attr_is(const Attr& attr, const char* text) {
  auto* value = std::get_if<std::string>(&attr);
  return value && *value == text;
}

} // namespace torch_xla
