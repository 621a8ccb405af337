// Type promotion of pointwise calls, as at::result_type does it.
#pragma once

#include <c10/core/ScalarType.h>

#include <span>

#include "tensor/pointwise.h"

namespace torch_xla {

// The type to which the arguments are promoted. Undefined where none has a type.
c10::ScalarType promoted_type(std::span<const PointwiseArg> args);
// Whether the number converts to the type without at::Scalar::to's overflow error.
bool fits(const at::Scalar& number, c10::ScalarType type);
// Whether all numbers of a type fit.
inline bool all_fit(c10::ScalarType from, c10::ScalarType to) {
  return from == to || (c10::promoteTypes(from, to) == to && to != c10::ScalarType::Half);
}
// The result's type by the row's rule.
c10::ScalarType result_dtype(const Op& op, std::span<const PointwiseArg> args);

} // namespace torch_xla
