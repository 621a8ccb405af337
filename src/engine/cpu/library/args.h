// Arguments of ATen calls out of a node's operands and attributes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <vector>

#include "core/dtype.h"
#include "core/inline_vec.h"
#include "ir/attr.h"

namespace torch_xla::cpu {

// A tensor without memory of its own; its address is set before each call.
at::Tensor make_alias(DType dtype, const Dims& dims, const Dims& strides);
void set_address(const at::Tensor& alias, void* data);

// The stack of a call with a node's attributes and operands; undefined tensors stand for None.
torch::jit::Stack make_stack(const c10::FunctionSchema& schema, const Attrs& attrs, const std::vector<at::Tensor>& operands);

} // namespace torch_xla::cpu
