// Undo for operations that write some elements of a tensor in place.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>

#include "ir/op.h"

namespace torch_xla::cpu {

// Restores memory that a step has overwritten. Called before the run releases the memory.
using Undo = std::function<void()>;

// Saves the elements that a call in place with these arguments will write: this part of the first argument, a tensor. Throws ATen's error
// for indices that do not fit.
Undo save_part(Written part, const torch::jit::Stack& arguments);
Undo save_whole(const at::Tensor& self);

} // namespace torch_xla::cpu
