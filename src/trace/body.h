// Body: a recorded part of a trace that runs more than once.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ir/computation.h"

namespace torch_xla {

// A number of a computation: bits of a double or int64, as Trace::add_scalar() takes them.
struct Number {
  DType dtype = DType::I64;
  uint64_t bits = 0;
};

// A recorded body and its operands beside the arguments.
struct Body {
  ComputationRef computation;
  std::vector<at::Tensor> shared; // its last parameters: tensors from outside
  std::vector<Number> numbers; // parallel to Graph::scalars
};

} // namespace torch_xla
