// Boxed calls that a pointwise row computes instead: fused, and one program serves all numbers.
#pragma once

#include <optional>
#include <vector>

#include "aten/boxed_call.h"
#include "aten/pointwise.h"
#include "aten/rows.h"

namespace torch_xla {

struct OtherForm {
  const Op& row;
  at::Tensor self;
  at::Tensor mask; // undefined for a power
  at::Tensor value; // of masked_fill
  c10::Scalar exponent;

  // Refer to the members.
  std::vector<PointwiseArg> args() const;
};

// The call in its other form, if the row has one. It can be recorded as it is: rows compute all operands' types and devices, and no written
// elements share memory.
std::optional<OtherForm> find_other_form(const Op& row, Convention convention, const BoxedCall& call);

} // namespace torch_xla
