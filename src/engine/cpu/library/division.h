// Divisions of whole numbers, before ATen computes them.
#pragma once

#include <ATen/core/stack.h>

namespace torch_xla::cpu {

// The most negative number of a type, divided by -1, ends the process in ATen's kernels. Such a divisor, argument 1, becomes 1: the
// quotient is what wraps around, that number, and the remainder 0. A number among the arguments that has to change becomes a tensor.
void wrap_quotients(torch::jit::Stack& arguments);
// The same of the least common multiple, which divides argument 0 by the greatest common divisor, with a sign: the two change places.
void wrap_multiples(torch::jit::Stack& arguments);

} // namespace torch_xla::cpu
