// Calls with a weight that stays the same: oneDNN reads it faster in an order of its own, into which it copies it in each call otherwise.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "engine/cpu/library/call.h"

namespace torch_xla::cpu {

// How calls of a row compute with a packed operand, to the same bits as without. `arguments` are those of ATen's operation, of which the
// operands may have no memory yet where only sizes count.
struct Packing {
  int32_t (*operand)(size_t num_operands); // the one that is packed
  bool (*fits)(const CallSpec& call, const torch::jit::Stack& arguments); // whether oneDNN computes the call, and takes the operand packed
  at::Tensor (*pack)(const torch::jit::Stack& arguments);
  at::Tensor (*compute)(const torch::jit::Stack& arguments, const at::Tensor& packed);
  Hash128 (*key)(const CallSpec& call); // of all that the packed operand depends on but its numbers
};

// mm and addmm (beta and alpha 1): the last operand.
extern const Packing kPackedMatrix;
// convolution, of two dims: the weight.
extern const Packing kPackedWeight;

} // namespace torch_xla::cpu
