// The kernel of barriers: its results are its operands.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_xla::cpu {

// Copies operand i to out i, unless the memory plan has put both into the same memory.
void hand_on(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

} // namespace torch_xla::cpu
