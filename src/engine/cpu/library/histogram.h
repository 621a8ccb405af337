// Histograms of bins of equal width, of integers too: ATen's take four times as long.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "ir/attr.h"

namespace torch_xla::cpu {

// aten::histc, see OwnKernel. Attributes: bins, low, high; equal bounds mean the operand's range. The result has the operand's type.
at::Tensor histogram(const Attrs& attrs, const std::vector<c10::IValue>& operands);

} // namespace torch_xla::cpu
