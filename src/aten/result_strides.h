// The memory order of new results, as in eager. Empty strides mean contiguous.
#pragma once

#include "aten/boxed_call.h"
#include "aten/pointwise.h"

namespace torch_xla {

// Strides of result i of a boxed row.
Dims result_strides(const Op& op, const BoxedCall& call, const Attrs& attrs, const Type& result, size_t i);
// An operation's changes to its arguments before TensorIterator.
struct Operands {
  DType common = DType::Undefined; // the operands' type after its conversion, if any
  size_t first_converted = 0; // the first argument that it converts
  bool wraps_numbers = false; // its numbers are operands without dims
};
// TensorIterator's choice (iterator_strides.cpp) for the arguments' memory orders.
Dims iterator_strides(const Dims& dims, std::span<const PointwiseArg> args, const Operands& operands = {});
// The same from the operands' strides over dims, 0 for broadcast dims.
Dims iterator_strides(const Dims& dims, std::span<const Dims> operands);
// Strides of self[indices] (indexed_strides.cpp); indices: undefined for None; without masks.
Dims indexed_strides(const Dims& dims, const at::Tensor& self, std::span<const at::Tensor> indices);
// Whether ATen's CPU kernel for a convolution (a row of layout kConvolution) gives channels-last results (conv_strides.cpp).
bool is_channels_last_kernel(const Op& op, const BoxedCall& call, const Attrs& attrs);
// Strides of a memory format.
Dims format_strides(const Dims& dims, c10::MemoryFormat format);

} // namespace torch_xla
