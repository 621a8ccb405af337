// The primitives that graphs are lowered to; code generation and the StableHLO writer take these.
#pragma once

#include <cstdint>

namespace torch_xla {

// The cost class of a primitive for one element. Each cost model says what a class costs (engine/cpu/cost.h).
enum class PrimClass : uint8_t {
  kNone, // nothing: the same number for all elements
  kSimple, // an instruction or a few
  kDivision, // one instruction of many cycles
  kRemainder,
  kFunction, // a polynomial, or a call of a vector library
  kFunctionOfTwo, // several of these
  kRandom, // the rounds of philox
  kReduction,
};

// A row is a primitive, its name and its class.
//
// Pointwise primitives take operands of one type (kConvert, kSelect's predicate and the comparisons aside) and broadcast
// them as NumPy does. Names are StableHLO's where it has the operation.
#define XLA_UNARY_PRIMS(_)                      \
  _(kNeg, "negate", kSimple)                    \
  _(kAbs, "abs", kSimple)                       \
  _(kSign, "sign", kSimple)                     \
  _(kNot, "not", kSimple)                       \
  _(kExp, "exponential", kFunction)             \
  _(kExpm1, "exponential_minus_one", kFunction) \
  _(kLog, "log", kFunction)                     \
  _(kLog1p, "log_plus_one", kFunction)          \
  _(kSqrt, "sqrt", kDivision)                   \
  _(kRsqrt, "rsqrt", kDivision)                 \
  _(kSin, "sine", kFunction)                    \
  _(kCos, "cosine", kFunction)                  \
  _(kTan, "tan", kFunction)                     \
  _(kTanh, "tanh", kFunction)                   \
  _(kAsin, "asin", kFunction)                   \
  _(kAcos, "acos", kFunction)                   \
  _(kAtan, "atan", kFunction)                   \
  _(kSinh, "sinh", kFunction)                   \
  _(kCosh, "cosh", kFunction)                   \
  _(kErf, "erf", kFunction)                     \
  _(kErfc, "erfc", kFunction)                   \
  _(kGelu, "gelu", kFunction)                   \
  _(kLogistic, "logistic", kFunction)           \
  _(kCeil, "ceil", kSimple)                     \
  _(kFloor, "floor", kSimple)                   \
  _(kRoundEven, "round_nearest_even", kSimple)  \
  _(kTrunc, "trunc", kSimple)                   \
  _(kIsFinite, "is_finite", kSimple)            \
  _(kIsNan, "is_nan", kSimple)

#define XLA_BINARY_PRIMS(_)                   \
  _(kAdd, "add", kSimple)                     \
  _(kSub, "subtract", kSimple)                \
  _(kMul, "multiply", kSimple)                \
  _(kDiv, "divide", kDivision)                \
  _(kRem, "remainder", kRemainder)            \
  _(kPow, "power", kFunctionOfTwo)            \
  _(kAtan2, "atan2", kFunctionOfTwo)          \
  _(kMax, "maximum", kSimple)                 \
  _(kMin, "minimum", kSimple)                 \
  _(kAnd, "and", kSimple)                     \
  _(kOr, "or", kSimple)                       \
  _(kXor, "xor", kSimple)                     \
  _(kShl, "shift_left", kSimple)              \
  _(kShrA, "shift_right_arithmetic", kSimple) \
  _(kShrL, "shift_right_logical", kSimple)    \
  _(kEq, "compare_eq", kSimple)               \
  _(kNe, "compare_ne", kSimple)               \
  _(kLt, "compare_lt", kSimple)               \
  _(kLe, "compare_le", kSimple)               \
  _(kGt, "compare_gt", kSimple)               \
  _(kGe, "compare_ge", kSimple)

#define XLA_REDUCE_PRIMS(_)                 \
  _(kReduceSum, "reduce_sum", kReduction)   \
  _(kReduceProd, "reduce_prod", kReduction) \
  _(kReduceMax, "reduce_max", kReduction)   \
  _(kReduceMin, "reduce_min", kReduction)   \
  _(kReduceAnd, "reduce_and", kReduction)   \
  _(kReduceOr, "reduce_or", kReduction)

enum class Prim : uint8_t {
  kNone,
  kConstant, // immediate value
  kScalar, // a scalar parameter of the program
  kLoad, // kernels only: element of a buffer
  kStore, // kernels only: write an element
  kIota, // affine function of the loop indices
  kRandomBits, // philox 4x32-10: one 32-bit word for (seed, offset, linear index)
  kConvert,
  kSelect, // select(pred, on_true, on_false)
#define XLA_PRIM(name, text, prim_class) name,
  XLA_UNARY_PRIMS(XLA_PRIM) XLA_BINARY_PRIMS(XLA_PRIM) XLA_REDUCE_PRIMS(XLA_PRIM)
#undef XLA_PRIM
      kCount
};

constexpr bool is_reduce(Prim p) {
  return p >= Prim::kReduceSum && p <= Prim::kReduceOr;
}
constexpr bool is_unary(Prim p) {
  return p >= Prim::kNeg && p <= Prim::kIsNan;
}
constexpr bool is_binary(Prim p) {
  return p >= Prim::kAdd && p <= Prim::kGe;
}
constexpr bool is_compare(Prim p) {
  return p >= Prim::kEq && p <= Prim::kGe;
}
// Whether its result is Bool for operands of any type.
constexpr bool gives_bool(Prim p) {
  return is_compare(p) || p == Prim::kIsFinite || p == Prim::kIsNan;
}
// Whether it is a function of one real number.
constexpr bool is_function(Prim p) {
  return p >= Prim::kExp && p <= Prim::kLogistic;
}
constexpr bool is_bitwise(Prim p) {
  return p == Prim::kNot || (p >= Prim::kAnd && p <= Prim::kShrL);
}

const char* prim_name(Prim p);
PrimClass prim_class(Prim p);

} // namespace torch_xla
