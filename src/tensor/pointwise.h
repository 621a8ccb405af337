// Recording of pointwise rows: type promotion, broadcasting and strides as ATen's TensorIterator gives them.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "ir/op.h"
#include "ir/type.h"

namespace torch_xla {

// One argument of a pointwise call: a tensor or a number.
struct PointwiseArg {
  PointwiseArg(const at::Tensor& t) : tensor(&t) {}
  PointwiseArg(const at::Scalar& s) : scalar(&s) {}
  PointwiseArg() = default; // None
  const at::Tensor* tensor = nullptr;
  const at::Scalar* scalar = nullptr;
};

struct PointwiseResult {
  Type type;
  Dims strides; // see result_strides.h
};

// False when an argument is of a dtype or on a device that the row does not compute on: the CPU fallback takes the call then (and raises
// ATen's error for tensors on two devices or a dtype that the operation does not have).
bool is_native_call(const Op& op, std::span<const PointwiseArg> args);
// The last argument is a factor (kUnitAlpha) and 1: it is not recorded.
bool has_unit_alpha(const Op& op, std::span<const PointwiseArg> args);
// Whether the row writes into out: of its result's dtype. Which conversions are allowed differs among ATen's operations: the CPU decides.
bool is_native_out(const Op& op, std::span<const PointwiseArg> args, const at::Tensor& out);
// Several elements share one place, as expand makes them: writes are left to ATen, which refuses most.
bool overlaps_itself(const at::Tensor& t);
// Throws where an operand overlaps the written tensor in part.
void check_apart(const at::Tensor& out, std::span<const PointwiseArg> args);
// Result type by the row's rule, broadcast dims, and the strides that eager's result would have.
PointwiseResult infer_pointwise(const Op& op, std::span<const PointwiseArg> args);

at::Tensor record_functional(const Op& op, std::span<const PointwiseArg> args, Attrs attrs = {});
// Writes into self. Throws eager's errors for shapes that do not fit, types that cannot be cast, memory that overlaps.
void record_inplace(const Op& op, const at::Tensor& self, std::span<const PointwiseArg> args, Attrs attrs = {});
// Gives an out tensor of other sizes these dims and strides (empty: contiguous).
void resize_out(const at::Tensor& out, const Dims& dims, const Dims& strides);
// Writes into out, resized first.
void record_out(const Op& op, const at::Tensor& out, std::span<const PointwiseArg> args, Attrs attrs = {});

} // namespace torch_xla
