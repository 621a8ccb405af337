// Type promotion as at::result_type does it, over the ten native types.
#pragma once

#include <span>

#include "ir/graph.h"

namespace torch_xla {

DType promote_types(DType a, DType b);

// Promotion of operands in three categories. Values with dims come before 0-d values, these before numbers; a later category matters only
// if its kind is higher (Bool < integers < floats).
class Promotion {
 public:
  enum Category { kWithDims, kZeroDim, kNumber };

  void add(Category category, DType type) {
    DType& common = types_[category];
    common = common == DType::Undefined || common == type ? type : promote_types(common, type);
  }
  // Undefined when nothing was added.
  DType result() const;

 private:
  DType types_[3] = {DType::Undefined, DType::Undefined, DType::Undefined};
};

// Common type of the operands; numbers are the program's scalars. The recorder has already converted integers beside a floating number to
// the default dtype. kNoValue is skipped; Undefined without other operands.
DType promote(const Graph& graph, std::span<const ValueId> operands);

} // namespace torch_xla
