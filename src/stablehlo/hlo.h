// The operations of StableHLO on values of a text, with result types worked out. Two operands broadcast as NumPy does.
#pragma once

#include <cstdint>
#include <optional>

#include "stablehlo/text.h"

namespace torch_xla::stablehlo {

// ---- Element by element ----

Hlo unary(const char* name, Hlo x);
Hlo binary(const char* name, Hlo a, Hlo b); // same dtype
Hlo compare(const char* direction, Hlo a, Hlo b); // EQ, NE, LT, LE, GT, GE; gives Bool
Hlo select(Hlo pred, Hlo on_true, Hlo on_false);
Hlo constant_like(Hlo x, double v); // of x's type and dims
// As the CPU engine converts: floats are truncated towards zero and wrap for small integers; every number but zero is true.
Hlo convert(Hlo x, DType dtype);
Hlo is_nan(Hlo x); // of any dtype

#define XLA_HLO_OPERATOR(symbol, name)           \
  inline Hlo operator symbol(Hlo a, Hlo b) {     \
    return binary(name, a, b);                   \
  }                                              \
  inline Hlo operator symbol(Hlo a, double b) {  \
    return binary(name, a, constant_like(a, b)); \
  }                                              \
  inline Hlo operator symbol(double a, Hlo b) {  \
    return binary(name, constant_like(b, a), b); \
  }
XLA_HLO_OPERATOR(+, "add")
XLA_HLO_OPERATOR(-, "subtract")
XLA_HLO_OPERATOR(*, "multiply")
XLA_HLO_OPERATOR(/, "divide")
XLA_HLO_OPERATOR(&, "and")
XLA_HLO_OPERATOR(|, "or")
#undef XLA_HLO_OPERATOR
#define XLA_HLO_COMPARISON(symbol, direction)          \
  inline Hlo operator symbol(Hlo a, Hlo b) {           \
    return compare(direction, a, b);                   \
  }                                                    \
  inline Hlo operator symbol(Hlo a, double b) {        \
    return compare(direction, a, constant_like(a, b)); \
  }
XLA_HLO_COMPARISON(<, "LT")
XLA_HLO_COMPARISON(<=, "LE")
XLA_HLO_COMPARISON(>, "GT")
XLA_HLO_COMPARISON(>=, "GE")
XLA_HLO_COMPARISON(==, "EQ")
XLA_HLO_COMPARISON(!=, "NE")
#undef XLA_HLO_COMPARISON
inline Hlo operator-(Hlo x) {
  return unary("negate", x);
}
inline Hlo operator!(Hlo x) {
  return unary("not", x);
}
inline Hlo select(Hlo pred, Hlo on_true, double on_false) {
  return select(pred, on_true, constant_like(on_true, on_false));
}
inline Hlo maximum(Hlo a, Hlo b) {
  return binary("maximum", a, b);
}
inline Hlo minimum(Hlo a, Hlo b) {
  return binary("minimum", a, b);
}
Hlo clamp(Hlo x, double low, double high);
Hlo erf(Hlo x); // the error function, by the call's name that front ends of StableHLO give it
Hlo gelu(Hlo x); // x * Phi(x), Phi: the normal distribution function
// Of positions in this many elements: half as wide as ATen's where it suffices, as 64-bit integers are slow or missing on accelerators.
inline DType index_type(int64_t count) {
  return count <= INT32_MAX ? DType::I32 : DType::I64;
}
// The extremes of a type, infinities for floats; 0-d.
Hlo lowest(Text& text, DType dtype);
Hlo highest(Text& text, DType dtype);
template <int64_t V>
Hlo number(Text& text, DType dtype) {
  return text.constant_int(V, {dtype, {}});
}

// ---- Shape ----

Hlo broadcast(Hlo x, const Dims& dims); // NumPy's; x itself when it has these dims
Hlo broadcast_in_dim(Hlo x, const Dims& dims, const Dims& mapping);
Hlo reshape(Hlo x, const Dims& dims); // x itself when it has these dims
// x, [M, K], before a reshape joined several dims to M: a mesh may cut each of them. Nothing without such dims, and on one device.
std::optional<Hlo> with_split_rows(const Hlo& x);
Dims all_but_last(const Hlo& x); // its dims, by their numbers
Hlo transpose(Hlo x, const Dims& order); // a reshape where only dims of 1 move
Hlo slice(Hlo x, const Dims& starts, const Dims& limits, const Dims& steps); // x itself when nothing is cut
Hlo slice_dim(Hlo x, size_t dim, int64_t start, int64_t limit, int64_t step = 1);
// Negative low and high remove elements; interior goes between elements.
Hlo pad(Hlo x, Hlo value, const Dims& low, const Dims& high, const Dims& interior);
Hlo pad_dim(Hlo x, Hlo value, size_t dim, int64_t low, int64_t high);
Hlo concatenate(const Hlos& parts, size_t dim);
Hlo reverse(Hlo x, const Dims& dims);
Hlo iota(Text& text, const Dims& dims, size_t dim, DType dtype);
Hlo flatten(Hlo x);
Hlo move_dim(Hlo x, size_t from, size_t to);
Dims without(const Dims& dims, size_t dim);
Dims with(Dims dims, size_t dim, int64_t extent);

} // namespace torch_xla::stablehlo
