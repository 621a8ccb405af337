// Sine, cosine, tangent and their inverses of floats as inline vector code.
#pragma once

#include "engine/cpu/codegen/vec.h"
#include "ir/prim.h"

namespace torch_xla::cpu {

// One of kSin, kCos, kTan, kAsin, kAcos and kAtan.
Value* emit_trigonometry(const Vec& v, Prim prim, Value* x);

} // namespace torch_xla::cpu
