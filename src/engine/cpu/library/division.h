// Divisions of whole numbers, before ATen computes them.
#pragma once

#include <ATen/core/stack.h>

namespace torch_xla::cpu {

// ATen's kernels end the process when they divide the most negative number of a type by -1. This changes such a divisor (argument 1) to 1:
// the quotient wraps around to the dividend, and the remainder is 0. A changed number argument becomes a tensor.
void wrap_quotients(torch::jit::Stack& arguments);
// The same for the least common multiple, which divides argument 0 by the signed greatest common divisor: exchanges the two arguments
// there.
void wrap_multiples(torch::jit::Stack& arguments);

} // namespace torch_xla::cpu
