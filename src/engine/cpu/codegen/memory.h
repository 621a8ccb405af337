// Vector loads and stores with any stride, whole or masked.
#pragma once

#include "engine/cpu/codegen/vec.h"

namespace torch_xla::cpu {

// `address` is lane 0's; stride (i64) is in elements; mask may be null (all lanes). Inactive lanes hold any value.
Value* emit_load(const Vec& v, DType t, Value* address, Value* stride, Value* mask);

// `from` is the type of x in registers, see pack(). With the constant 0 as stride lane 0 is stored.
void emit_store(const Vec& v, DType t, DType from, Value* x, Value* address, Value* stride, Value* mask);

// Address of element `index` (i64) of an array of type t.
Value* element_address(const Vec& v, DType t, Value* base, Value* index);

} // namespace torch_xla::cpu
