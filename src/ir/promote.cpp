// Type promotion: the lattice of two types and the categories of operands.
#include "ir/promote.h"

#include <algorithm>

#include "core/errors.h"

namespace torch_xla {
namespace {

DType promote_floats(DType a, DType b) {
  if (a == DType::F64 || b == DType::F64) {
    return DType::F64;
  }
  return DType::F32; // also of F16 and BF16, neither of which holds the other
}

DType promote_integers(DType a, DType b) {
  if (a == DType::U8 || b == DType::U8) {
    DType other = a == DType::U8 ? b : a;
    return other == DType::I8 ? DType::I16 : other;
  }
  return std::max(a, b);
}

// The type of a category combined with a lower one; Undefined is neutral.
DType combine(DType higher, DType lower) {
  if (higher == DType::Undefined || lower == DType::Undefined) {
    return higher == DType::Undefined ? lower : higher;
  }
  bool lifts = higher == DType::Bool || (is_float(lower) && !is_float(higher));
  return lifts ? promote_types(higher, lower) : higher;
}

} // namespace

DType promote_types(DType a, DType b) {
  XLA_ASSERT(is_native(a) && is_native(b), "promotion of ", dtype_name(a), " and ", dtype_name(b));
  if (a == b || b == DType::Bool) {
    return a;
  }
  if (a == DType::Bool) {
    return b;
  }
  if (is_float(a) && is_float(b)) {
    return promote_floats(a, b);
  }
  if (is_float(a) || is_float(b)) {
    return is_float(a) ? a : b;
  }
  return promote_integers(a, b);
}

DType Promotion::result() const {
  return combine(types_[kWithDims], combine(types_[kZeroDim], types_[kNumber]));
}

DType promote(const Graph& graph, std::span<const ValueId> operands) {
  Promotion promotion;
  for (ValueId v : operands) {
    if (v != kNoValue) {
      const Value& value = graph.values[v];
      bool number = value.kind == ValueKind::kScalar;
      promotion.add(number ? Promotion::kNumber : value.type.dims.empty() ? Promotion::kZeroDim : Promotion::kWithDims, value.type.dtype);
    }
  }
  return promotion.result();
}

} // namespace torch_xla
