// Arguments of ATen calls out of a node's operands and attributes.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "engine/cpu/layout.h"

namespace torch_xla::cpu {

// A tensor without memory of its own; its address is set before each call.
at::Tensor make_alias(DType dtype, const Dims& dims, const Dims& strides);
void set_address(const at::Tensor& alias, void* data);

// Which ATen operation a node calls and with which of the node's operands and attributes, in the order of that operation's schema.
struct Target {
  std::string name; // without the overload
  std::string overload;
  std::vector<int> operands; // positions; -1: None
  std::vector<int> attrs;
};
Target find_target(const Node& node);

// The stack of a call. `operands` are parallel to the node's; undefined tensors stand for None.
torch::jit::Stack make_stack(const c10::FunctionSchema& schema, const Node& node, const Target& target, const std::vector<at::Tensor>& operands);

} // namespace torch_xla::cpu
