// The types and strides of a call's results by ATen's own kernels: that of the CPU, on zeros, or the shape rule, its Meta kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <vector>

#include "aten/boxed_call.h"
#include "ir/type.h"

namespace torch_xla {

struct ResultShape {
  Type type; // Undefined: the call leaves the result undefined
  Dims strides; // empty: contiguous
};
using ResultShapes = std::shared_ptr<const std::vector<ResultShape>>;

// Of a call of the functional overload `op`. `arguments` are the call's, or those of another form that begin with them; `call` is the same
// taken apart, and says which tensors there are. Remembered by the tensors' geometries and the attributes, as many Meta kernels are Python
// and take 0.2 ms, the first one a second or three. Null where both refuse the arguments. Any thread; without the recording lock.
ResultShapes infer_by_aten(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, const BoxedCall& call);

} // namespace torch_xla
