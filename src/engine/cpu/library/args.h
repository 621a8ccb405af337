// Arguments of ATen calls out of a node's operands and attributes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <vector>

#include "engine/cpu/place.h"

namespace torch_xla::cpu {

// A tensor without memory of its own; its address is set before each call.
at::Tensor make_alias(DType dtype, const Dims& dims, const Dims& strides);
void set_address(const at::Tensor& alias, void* data);

// The stack of a call. `operands` are parallel to the node's; undefined tensors stand for None.
torch::jit::Stack make_stack(const c10::FunctionSchema& schema, const Node& node, const std::vector<at::Tensor>& operands);

} // namespace torch_xla::cpu
