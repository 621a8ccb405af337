// The memory order of new results, as eager's have it. Strides that are empty mean contiguous.
#pragma once

#include "aten/boxed_call.h"
#include "aten/pointwise.h"

namespace torch_xla {

// Of result i of a boxed row.
Dims result_strides(const Op& op, const BoxedCall& call, const Attrs& attrs, const Type& result, size_t i);
// What an operation makes of its arguments before TensorIterator sees them.
struct Operands {
  DType common = DType::Undefined; // the type to which it converts them, if it does
  size_t first_converted = 0; // the arguments before it stay as they are
  bool wraps_numbers = false; // its numbers are operands without dims
};
// As TensorIterator (iterator_strides.cpp) chooses it from the arguments' memory orders.
Dims iterator_strides(const Dims& dims, std::span<const PointwiseArg> args, const Operands& operands = {});
// The same from the operands' strides over dims, 0 where they are broadcast.
Dims iterator_strides(const Dims& dims, std::span<const Dims> operands);
// Of self[indices] (indexed_strides.cpp), undefined where an index is None; without masks.
Dims indexed_strides(const Dims& dims, const at::Tensor& self, std::span<const at::Tensor> indices);
// Whether ATen's CPU kernel for a convolution gives channels-last results (conv_strides.cpp), of a row of the layout kConvolution.
bool is_channels_last_kernel(const Op& op, const BoxedCall& call, const Attrs& attrs);
// Of a memory format.
Dims format_strides(const Dims& dims, c10::MemoryFormat format);

} // namespace torch_xla
