// Which pointwise calls the rows take, and which are left to ATen.
#pragma once

#include "aten/pointwise.h"

namespace torch_xla {

// False when an argument is of a dtype or on a device that the row does not compute on: the CPU fallback takes the call then (and raises
// ATen's error for tensors on two devices or a dtype that the operation does not have).
bool is_native_call(const Op& op, std::span<const PointwiseArg> args);
// The last argument is a factor (kUnitAlpha) and 1: it is not recorded.
bool has_unit_alpha(const Op& op, std::span<const PointwiseArg> args);
// Of a call that the row takes: an integer division by a tensor, in which only a run finds a zero. ATen's kernel does, so that computes it.
// `result`: the type that is divided in.
bool divides_by_data(const Op& op, std::span<const PointwiseArg> args, DType result);
// Whether the row writes into out: of its result's dtype. Which conversions are allowed differs among ATen's operations: the CPU decides.
bool is_native_out(const Op& op, std::span<const PointwiseArg> args, const at::Tensor& out);
// A tensor of ours of a type that rows compute, in which each element has a place of its own.
bool is_writable_out(const at::Tensor& out);
// Several elements share one place, as expand makes them: writes are left to ATen, which refuses most.
bool overlaps_itself(const at::Tensor& t);

} // namespace torch_xla
