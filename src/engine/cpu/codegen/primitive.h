// The meaning of each pointwise primitive and reduction, as IR for one vector of lanes.
#pragma once

#include "engine/cpu/codegen/vec.h"
#include "ir/prim.h"

namespace torch_xla::cpu {

// `type` is that of the operands (for kSelect of the two values, for kConvert of the source); `result` differs for kConvert only.
Value* emit_primitive(const Vec& v, Prim prim, DType type, DType result, llvm::ArrayRef<Value*> args);

// The value that a reduction starts from.
Value* neutral(const Vec& v, Prim reduce, DType t);
Value* combine(const Vec& v, Prim reduce, DType t, Value* a, Value* b);
// All lanes combined, as a scalar.
Value* combine_lanes(const Vec& v, Prim reduce, DType t, Value* x);

} // namespace torch_xla::cpu
