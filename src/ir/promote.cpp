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

// Undefined is neutral.
DType merge(DType a, DType b) {
  if (a == DType::Undefined || b == DType::Undefined) {
    return a == DType::Undefined ? b : a;
  }
  return promote_types(a, b);
}

// What a category of higher rank makes of one below it.
DType combine_categories(DType higher, DType lower) {
  if (is_float(higher)) {
    return higher;
  }
  bool lifts = higher == DType::Undefined || higher == DType::Bool || is_float(lower);
  return lifts ? merge(higher, lower) : higher;
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

DType promote(const Graph& graph, std::span<const ValueId> operands) {
  DType with_dims = DType::Undefined;
  DType zero_dim = DType::Undefined;
  DType number = DType::Undefined;
  for (ValueId v : operands) {
    if (v == kNoValue) {
      continue;
    }
    const Value& value = graph.values[v];
    if (value.kind == ValueKind::kScalar) {
      number = merge(number, value.type.dtype);
    } else {
      DType& category = value.type.dims.empty() ? zero_dim : with_dims;
      category = merge(category, value.type.dtype);
    }
  }
  return combine_categories(with_dims, combine_categories(zero_dim, number));
}

} // namespace torch_xla
