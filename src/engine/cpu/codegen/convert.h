// Conversions between element types, and between their forms in registers and in memory.
#pragma once

#include "engine/cpu/codegen/vec.h"

namespace torch_xla::cpu {

Value* emit_convert(const Vec& v, DType from, DType to, Value* x);

// Memory form of one lane: Bool is i8, BF16 is i16, F16 is half.
llvm::Type* memory_type(const Vec& v, DType t);
Value* unpack(const Vec& v, DType t, Value* raw);
// `from` is the type of the register value: a value of the 16-bit type needs no rounding.
Value* pack(const Vec& v, DType t, DType from, Value* x);

} // namespace torch_xla::cpu
