// A node of a trace as a compiled program of its own: where the nodes run one by one and ATen has no kernel for this one.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "engine/engine.h"

namespace torch_xla::cpu {

// Whether the row means the same apart from the rest of its trace.
bool has_program(const Op& row);

// One for all nodes of the row with the same attributes and types of operands. Throws what compiling does. Any thread.
std::shared_ptr<Executable> find_or_compile_node(const Graph& trace, const Node& node, int device);

// The results, undefined where the node gives none. `operands` are the node's: tensors in any order, and numbers as such; `threads` as
// RunOptions::threads. It is not cancelled. Throws StepError.
std::vector<at::Tensor> run_node(
    Executable& program, const Graph& trace, const Node& node, const std::vector<c10::IValue>& operands, int device, int threads);

} // namespace torch_xla::cpu
