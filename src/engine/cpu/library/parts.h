// Undo for operations that write some elements of a tensor in place.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>

#include "ir/op.h"

namespace torch_xla::cpu {

// Restores memory that a step has overwritten. Called before the run releases the memory.
using Undo = std::function<void()>;

// For a call in place with these arguments, the first of which is the tensor of which it will write this part. Throws what ATen does for
// indices that do not fit.
Undo save_part(Written part, const torch::jit::Stack& arguments);
Undo save_whole(const at::Tensor& self);

} // namespace torch_xla::cpu
