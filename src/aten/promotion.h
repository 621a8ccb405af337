// Type promotion of pointwise calls, as in at::result_type.
#pragma once

#include <span>

#include "aten/pointwise.h"
#include "ir/promote.h"

namespace torch_xla {

// The promoted type of the arguments, all of native types. Undefined if none has a type.
DType promoted_type(std::span<const PointwiseArg> args);
// Whether the number converts to the type without at::Scalar::to's overflow error.
bool fits(const at::Scalar& number, DType type);
// Whether all numbers of a type fit.
inline bool all_fit(DType from, DType to) {
  return from == to || (promote_types(from, to) == to && to != DType::F16);
}
// The row's common type for its operands; Undefined if it takes each as it is.
DType common_dtype(const Op& op, std::span<const PointwiseArg> args);
// The result's type by the row's rule.
DType result_dtype(const Op& op, std::span<const PointwiseArg> args);

} // namespace torch_xla
