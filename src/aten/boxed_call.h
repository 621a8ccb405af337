// A boxed call, taken apart by schema into operands, numbers and attributes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

#include "aten/pointwise.h"
#include "ir/op.h"

namespace torch_xla {

// The use of an argument. kNumber: a parameter of the program. kAttribute: part of its key.
enum class ArgumentRole : uint8_t { kTensor, kTensorList, kNumber, kAttribute, kGenerator, kOut };
ArgumentRole role_of(const c10::Argument& argument, const Op& op);

// A call, taken apart.
struct BoxedCall {
  BoxedCall() = default;
  BoxedCall(BoxedCall&&) = default;
  ~BoxedCall() {
    for (size_t i = 0; is_borrowed && i < tensors.size(); ++i) {
      tensors[i].unsafeReleaseTensorImpl();
    }
  }
  // Appends a tensor that outlives the call, without a reference to it: the first reference from C++ to a tensor of Python takes the GIL.
  void borrow(const at::Tensor& t) {
    tensors.push_back(c10::MaybeOwnedTraits<at::Tensor>::createBorrow(t));
  }

  std::vector<at::Tensor> tensors; // undefined for None; in operand order
  bool is_borrowed = false; // all tensors are; nobody replaces one then
  std::vector<at::Tensor> outs;
  std::vector<c10::Scalar> numbers;
  InlineVec<int, 4> order; // operands: index into tensors, or -1 - index into numbers
  Attrs attrs;
  std::optional<at::Generator> generator;
  std::optional<int> device; // of its tensors
};

// Whether ATen's device kernels accept CPU tensors for the argument.
inline bool may_lie_on_host(const Op& op, size_t argument) {
  return (op.traits & kHostArgument) && argument == 1;
}
void take_argument(const c10::IValue& value, ArgumentRole role, BoxedCall& call);
// All arguments; CPU tensors that `op` accepts move to the call's device: that of its tensors.
BoxedCall take_apart(c10::ArrayRef<c10::IValue> arguments, const std::vector<ArgumentRole>& roles, const Op& op);
// Device of the first XLA tensor among the arguments, in lists too.
std::optional<int> find_device(c10::ArrayRef<c10::IValue> arguments);
// That device, else the one that an argument names. Throws c10::Error if it does not exist.
int device_of_call(c10::ArrayRef<c10::IValue> arguments);
// Operands that are out tensor i become copies of its content, if its sizes are to change to `dims`.
void keep_operands(BoxedCall& call, size_t i, const Dims& dims);
// Whether the first tensor's type is among the row's, if it states any.
bool takes_dtype(const Op& op, const BoxedCall& call);
// For a read of the elements at given indices: whether an index is a mask, so that the shape of the result depends on data.
bool reads_by_mask(const Op& op, const BoxedCall& call);
// A pointwise row's operands; they refer to the call's.
std::vector<PointwiseArg> pointwise_args(const BoxedCall& call);
// Whether ATen accepts these numbers and words; otherwise it raises an error.
bool has_valid_parameters(const Op& op, const BoxedCall& call);

} // namespace torch_xla
