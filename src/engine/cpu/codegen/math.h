// Elementary functions as inline vector code; those that are rare or long are calls (external.h).
#pragma once

#include "engine/cpu/codegen/vec.h"
#include "ir/prim.h"

namespace torch_xla::cpu {

// Value of a unary floating-point primitive from kExp to kLogistic (see ir/prim.h), in float or double.
Value* emit_math(const Vec& v, Prim prim, DType dtype, Value* x);

// 2^x of floats.
Value* emit_exp2(const Vec& v, Value* x);

} // namespace torch_xla::cpu
