// Types and strides of a call's results by ATen's own kernels: the CPU's, on zeros, or the shape rule (Meta).
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

// The result types of an earlier call with the same geometries and attributes; null: there was none, or it was refused.
ResultShapes find_known_shapes(const c10::OperatorHandle& op, const BoxedCall& call);
// For a call of the functional overload `op`. `arguments`: the call's, or those of another form that begin with them; `call`: the same
// taken apart, for the list of tensors. Cached by the tensors' geometries and the attributes: many Meta kernels are Python and take 0.2 ms,
// the first one a second or three. Null if both kernels refuse the arguments. Any thread; without the recording lock.
ResultShapes infer_by_aten(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, const BoxedCall& call);

} // namespace torch_xla
