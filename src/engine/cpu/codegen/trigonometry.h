// Sine, cosine, tangent and their inverses of floats as inline vector code.
#pragma once

#include "engine/cpu/codegen/vec.h"

namespace torch_xla::cpu {

Value* emit_sin(const Vec& v, Value* x);
Value* emit_cos(const Vec& v, Value* x);
Value* emit_tan(const Vec& v, Value* x);
Value* emit_asin(const Vec& v, Value* x);
Value* emit_acos(const Vec& v, Value* x);
Value* emit_atan(const Vec& v, Value* x);

} // namespace torch_xla::cpu
