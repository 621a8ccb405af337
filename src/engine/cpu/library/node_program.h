// Compiles a single node of an interpreted trace to a program: for nodes without a kernel of ATen's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "engine/engine.h"

namespace torch_xla::cpu {

// Whether the node means the same apart from the rest of its trace.
bool has_program(const Node& node);

// The program that serves all nodes of the row with the same attributes and operand types. Throws compile errors. Any thread.
std::shared_ptr<Executable> find_or_compile_node(const Graph& trace, const Node& node, int device);

// Runs the program; missing results are undefined. `operands` are the node's: tensors in any memory order, and numbers; `threads` as
// RunOptions::threads. Cannot be cancelled. Throws StepError.
std::vector<at::Tensor> run_node(
    Executable& program, const Graph& trace, const Node& node, const std::vector<c10::IValue>& operands, int device, int threads);

} // namespace torch_xla::cpu
