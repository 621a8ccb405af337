// Undo for operations that write some elements of a tensor in place.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>

namespace torch_xla::cpu {

// Restores memory that a step has overwritten. Called before the run releases the memory.
using Undo = std::function<void()>;

// Saves the elements that a call in place with these arguments will write; the first argument is the tensor. Throws ATen's error for
// indices that do not fit.
Undo save_selected(const torch::jit::Stack& arguments); // dim, index: as index_select reads
Undo save_scattered(const torch::jit::Stack& arguments); // dim, index: as gather reads
Undo save_indexed(const torch::jit::Stack& arguments); // indices: as index reads
Undo save_taken(const torch::jit::Stack& arguments); // index: as take reads
Undo save_whole(const at::Tensor& self);

} // namespace torch_xla::cpu
