// Rows that ATen does not know, where the nodes of a trace are computed one by one, and those that are faster by a function of our own.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "ir/op.h"

namespace torch_xla::cpu {

// Operands are tensors and numbers.
using OwnKernel = at::Tensor (*)(const Attrs& attrs, const std::vector<c10::IValue>& operands);

// Null for rows that ATen knows.
OwnKernel find_own_kernel(const Op& row);

} // namespace torch_xla::cpu
