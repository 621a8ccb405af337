// Calls with a constant weight. oneDNN copies a weight into an order of its own in each call; a packed weight is copied once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "engine/cpu/library/call.h"

namespace torch_xla::cpu {

// How calls of a row compute with a packed operand, to the same bits as without. `arguments` are those of ATen's operation; functions that
// read only sizes take tensors without memory.
struct Packing {
  int32_t (*operand)(size_t num_operands); // position of the packed operand
  bool (*fits)(const CallSpec& call, const torch::jit::Stack& arguments); // whether oneDNN computes the call and accepts the packed operand
  at::Tensor (*pack)(const torch::jit::Stack& arguments);
  at::Tensor (*compute)(const torch::jit::Stack& arguments, const at::Tensor& packed);
  Hash128 (*key)(const CallSpec& call); // hash of everything that the packed operand depends on except its numbers
};

// mm and addmm (beta and alpha 1): the last operand.
extern const Packing kPackedMatrix;
// convolution, of two dims: the weight.
extern const Packing kPackedWeight;

} // namespace torch_xla::cpu
