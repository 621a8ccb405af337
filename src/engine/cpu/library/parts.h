// Operations that write some elements of a tensor, in its own memory: what they write over can be taken back.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>

namespace torch_xla::cpu {

// Takes back what a step has written over memory that the run may have to restore. Called before the memory is let go.
using Undo = std::function<void()>;

// For a call in place with these arguments, the first of which is the tensor that it will write. Throws what ATen does for indices that do
// not fit.
Undo save_selected(const torch::jit::Stack& arguments); // dim, index: as index_select reads
Undo save_scattered(const torch::jit::Stack& arguments); // dim, index: as gather reads
Undo save_indexed(const torch::jit::Stack& arguments); // indices: as index reads
Undo save_taken(const torch::jit::Stack& arguments); // index: as take reads
Undo save_whole(const at::Tensor& self);

} // namespace torch_xla::cpu
