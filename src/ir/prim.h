// The primitives that graphs are lowered to: what code generation and the StableHLO writer understand.
#pragma once

#include <cstdint>

namespace torch_xla {

// Pointwise primitives take operands of one type (kConvert, kSelect's predicate and the comparisons aside) and broadcast
// them as NumPy does. Names are StableHLO's where it has the operation.
#define XLA_UNARY_PRIMS(_)            \
  _(kNeg, "negate")                   \
  _(kAbs, "abs")                      \
  _(kSign, "sign")                    \
  _(kNot, "not")                      \
  _(kExp, "exponential")              \
  _(kExpm1, "exponential_minus_one")  \
  _(kLog, "log")                      \
  _(kLog1p, "log_plus_one")           \
  _(kSqrt, "sqrt")                    \
  _(kRsqrt, "rsqrt")                  \
  _(kSin, "sine")                     \
  _(kCos, "cosine")                   \
  _(kTan, "tan")                      \
  _(kTanh, "tanh")                    \
  _(kAsin, "asin")                    \
  _(kAcos, "acos")                    \
  _(kAtan, "atan")                    \
  _(kSinh, "sinh")                    \
  _(kCosh, "cosh")                    \
  _(kErf, "erf")                      \
  _(kErfc, "erfc")                    \
  _(kLogistic, "logistic")            \
  _(kCeil, "ceil")                    \
  _(kFloor, "floor")                  \
  _(kRoundEven, "round_nearest_even") \
  _(kTrunc, "trunc")                  \
  _(kIsFinite, "is_finite")           \
  _(kIsNan, "is_nan")

#define XLA_BINARY_PRIMS(_)          \
  _(kAdd, "add")                     \
  _(kSub, "subtract")                \
  _(kMul, "multiply")                \
  _(kDiv, "divide")                  \
  _(kRem, "remainder")               \
  _(kPow, "power")                   \
  _(kAtan2, "atan2")                 \
  _(kMax, "maximum")                 \
  _(kMin, "minimum")                 \
  _(kAnd, "and")                     \
  _(kOr, "or")                       \
  _(kXor, "xor")                     \
  _(kShl, "shift_left")              \
  _(kShrA, "shift_right_arithmetic") \
  _(kShrL, "shift_right_logical")    \
  _(kEq, "compare_eq")               \
  _(kNe, "compare_ne")               \
  _(kLt, "compare_lt")               \
  _(kLe, "compare_le")               \
  _(kGt, "compare_gt")               \
  _(kGe, "compare_ge")

#define XLA_REDUCE_PRIMS(_)     \
  _(kReduceSum, "reduce_sum")   \
  _(kReduceProd, "reduce_prod") \
  _(kReduceMax, "reduce_max")   \
  _(kReduceMin, "reduce_min")   \
  _(kReduceAnd, "reduce_and")   \
  _(kReduceOr, "reduce_or")

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
#define XLA_PRIM(name, text) name,
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

const char* prim_name(Prim p);

} // namespace torch_xla
