// A boxed call, taken apart by its schema into operands, numbers and attributes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <optional>
#include <string_view>
#include <vector>

#include "ir/op.h"

namespace torch_xla {

// What becomes of an argument. kNumber: a parameter of the program. kAttribute: part of its key.
enum class ArgumentRole : uint8_t { kTensor, kTensorList, kNumber, kAttribute, kGenerator, kOut };
ArgumentRole role_of(const c10::Argument& argument, const Op& op);

// A call on the stack, taken apart.
struct Call {
  std::vector<at::Tensor> tensors; // undefined for None; in operand order
  std::vector<at::Tensor> outs;
  std::vector<c10::Scalar> numbers;
  std::vector<int> order; // operands: index into tensors, or -1 - index into numbers
  Attrs attrs;
  std::optional<at::Generator> generator;
};

// Arguments whose tensors ATen's device kernels take from the CPU as well: index tensors, probabilities.
bool may_lie_on_host(const c10::FunctionSchema& schema, size_t argument);
void take_argument(const c10::IValue& value, ArgumentRole role, Call& call);
// Whether ATen computes with these numbers and words; otherwise it raises an error.
bool has_valid_parameters(std::string_view row, const Call& call);

} // namespace torch_xla
