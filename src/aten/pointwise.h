// Recording of pointwise rows: type promotion, broadcasting and strides as in ATen's TensorIterator.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "ir/op.h"

namespace torch_xla {

// One argument of a pointwise call: a tensor or a number.
struct PointwiseArg {
  PointwiseArg(const at::Tensor& t) : tensor(&t) {}
  PointwiseArg(const at::Scalar& s) : scalar(&s) {}
  PointwiseArg() = default; // None
  const at::Tensor* tensor = nullptr;
  const at::Scalar* scalar = nullptr;
};

// Throws if an operand partly overlaps the written tensor.
void check_apart(const at::Tensor& out, std::span<const PointwiseArg> args);

at::Tensor record_functional(const Op& op, std::span<const PointwiseArg> args, Attrs attrs = {});
// Writes into self. Throws eager's errors for wrong shapes, impossible casts and overlapping memory.
void record_inplace(const Op& op, const at::Tensor& self, std::span<const PointwiseArg> args, Attrs attrs = {});
// Resizes an out tensor of other sizes to these dims and strides (empty: contiguous).
void resize_out(const at::Tensor& out, const Dims& dims, const Dims& strides);
// Writes into out, resized first.
void record_out(const Op& op, const at::Tensor& out, std::span<const PointwiseArg> args, Attrs attrs = {});

} // namespace torch_xla
