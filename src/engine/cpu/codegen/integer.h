// Integer and Bool arithmetic; nothing here traps or is undefined for any operand.
#pragma once

#include "engine/cpu/codegen/vec.h"
#include "ir/prim.h"

namespace torch_xla::cpu {

Value* emit_integer_unary(const Vec& v, Prim prim, DType t, Value* x);
Value* emit_integer_binary(const Vec& v, Prim prim, DType t, Value* a, Value* b);
Value* emit_bool_binary(const Vec& v, Prim prim, Value* a, Value* b);

} // namespace torch_xla::cpu
