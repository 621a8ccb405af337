// Elementary functions as inline vector code; rare or long ones are calls (external.h).
#pragma once

#include "engine/cpu/codegen/vec.h"
#include "ir/prim.h"

namespace torch_xla::cpu {

// 1.5 * 2^23: adding it to a float below 2^22 rounds the float to an integer, in the low bits of the sum.
constexpr double kRound = 12582912.0;

// Value of a unary floating-point primitive from kExp to kLogistic (see ir/prim.h), in float or double.
Value* emit_math(const Vec& v, Prim prim, DType dtype, Value* x);

// 2^x of floats.
Value* emit_exp2(const Vec& v, Value* x);

} // namespace torch_xla::cpu
