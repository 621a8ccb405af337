// Builds arguments of ATen calls from a node's operands and attributes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <vector>

#include "core/dtype.h"
#include "core/inline_vec.h"
#include "ir/attr.h"

namespace torch_xla::cpu {

// As ATen takes them.
inline c10::IntArrayRef ref(const Dims& dims) {
  return {dims.data(), dims.size()};
}
inline c10::ScalarType scalar_type(DType dtype) {
  return static_cast<c10::ScalarType>(dtype);
}

// A tensor without memory of its own; its address is set before each call.
at::Tensor make_alias(DType dtype, const Dims& dims, const Dims& strides);
void set_address(const at::Tensor& alias, void* data);

// The operand as a tensor; a number becomes a tensor that promotes as the number does. Undefined for None.
at::Tensor tensor_of(const c10::IValue& operand);

// The stack of a call with a node's attributes and operands: tensors (undefined or None if missing) and numbers. `takes_numbers`: the
// numbers among the arguments are operands too.
torch::jit::Stack make_stack(
    const c10::FunctionSchema& schema, const Attrs& attrs, const std::vector<c10::IValue>& operands, bool takes_numbers = false);

// The position of the generator argument, or -1.
int find_generator(const c10::FunctionSchema& schema);
// ATen's generator, set by the last operands: seed and offset.
at::Generator make_generator(const std::vector<at::Tensor>& operands);

} // namespace torch_xla::cpu
