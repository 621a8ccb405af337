// The kernel of barriers: results that are the operands.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_xla::cpu {

// Copies operand i to out i, where the memory plan has not put both into the same memory.
void hand_on(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

} // namespace torch_xla::cpu
