// What this engine computes in ATen's place, or checks before ATen computes: by row.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <vector>

#include "ir/graph.h"

namespace torch_xla::cpu {

// Computes the only result of a call into `out`, which is row-major and no operand.
using CallKernel = void (*)(const std::vector<at::Tensor>& operands, const at::Tensor& out);

struct Substitute {
  const char* row;
  CallKernel (*choose)(const Graph& graph, const Node& node) = nullptr; // the kernel for this node, or null: ATen's
  void (*check)(const torch::jit::Stack& arguments) = nullptr; // raises ATen's error for what its kernel takes without a look
};

// Nothing but the name for rows that are ATen's alone.
Substitute find_substitute(const Op& op);

} // namespace torch_xla::cpu
