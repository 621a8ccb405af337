// Functions of our own for rows of an interpreted trace: rows without a kernel of ATen's, and rows that are faster this way.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "ir/op.h"

namespace torch_xla::cpu {

// Operands are tensors and numbers.
using OwnKernel = at::Tensor (*)(const Attrs& attrs, const std::vector<c10::IValue>& operands);

// Null for rows that ATen computes.
OwnKernel find_own_kernel(const Op& row);

} // namespace torch_xla::cpu
