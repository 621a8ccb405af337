// Type promotion as at::result_type does it, over the ten native types.
#pragma once

#include <span>

#include "ir/graph.h"

namespace torch_xla {

DType promote_types(DType a, DType b);
// Common type of the operands. Values with dims count before 0-d values, these before numbers of the program (scalars); a lower category
// matters only where its kind is higher (Bool < integers < floats). Where a floating number stands for the program's default dtype, that
// is beside integers, the recorder has converted these. kNoValue is passed over; Undefined when nothing is left.
DType promote(const Graph& graph, std::span<const ValueId> operands);

} // namespace torch_xla
