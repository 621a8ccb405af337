// Decides which pointwise calls rows take; the others go to ATen.
#pragma once

#include "aten/pointwise.h"

namespace torch_xla {

// False if the row does not compute an argument's dtype or device: then the CPU fallback takes the call (and raises ATen's error for
// tensors on two devices or an unsupported dtype).
bool is_native_call(const Op& op, std::span<const PointwiseArg> args);
// Whether the last argument is a factor (kUnitAlpha) of 1, which is not recorded.
bool has_unit_alpha(const Op& op, std::span<const PointwiseArg> args);
// Whether a call that the row takes is an integer division by a tensor: only the run finds a zero. ATen's kernel checks for it, so it
// computes the call. `result`: the type of the division.
bool divides_by_data(const Op& op, std::span<const PointwiseArg> args, DType result);
// Whether the row can write into out: it has the result's dtype. ATen's operations differ in the allowed conversions: the CPU decides.
bool is_native_out(const Op& op, std::span<const PointwiseArg> args, const at::Tensor& out);
// An XLA tensor of a type that rows compute, without elements that share memory.
bool is_writable_out(const at::Tensor& out);
// Whether elements share memory, as after expand: ATen gets such writes and refuses most.
bool overlaps_itself(const at::Tensor& t);

} // namespace torch_xla
