// The memory order of new results, as eager's have it. Strides that are empty mean contiguous.
#pragma once

#include "tensor/boxed_call.h"
#include "tensor/pointwise.h"

namespace torch_xla {

// Of result i of a boxed row.
Dims result_strides(const Op& op, const BoxedCall& call, const Attrs& attrs, const Type& result, size_t i);
// As TensorIterator (iterator_strides.cpp) chooses it from the arguments' memory orders. `common`: the type to which the operation converts
// its operands, if it does.
Dims iterator_strides(const Dims& dims, std::span<const PointwiseArg> args, DType common = DType::Undefined);
// The same from the operands' strides over dims, 0 where they are broadcast.
Dims iterator_strides(const Dims& dims, std::span<const Dims> operands);
// Of self[indices] (indexed_strides.cpp), undefined where an index is None; without masks.
Dims indexed_strides(const Dims& dims, const at::Tensor& self, std::span<const at::Tensor> indices);
// Whether ATen's CPU kernel for a convolution gives channels-last results (conv_strides.cpp), of a row of the layout kConvolution.
bool is_channels_last_kernel(const Op& op, const BoxedCall& call, const Attrs& attrs);
// Of a memory format.
Dims format_strides(const Dims& dims, c10::MemoryFormat format);

} // namespace torch_xla
