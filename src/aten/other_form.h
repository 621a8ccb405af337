// Calls of boxed rows that a pointwise row computes, fused and without a limit to the numbers that a program serves.
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
  at::Tensor mask; // undefined: a power
  at::Tensor value; // of masked_fill
  c10::Scalar exponent;

  // They refer to the members.
  std::vector<PointwiseArg> args() const;
};

// The form of a call that the row would compute otherwise; nothing for all other calls. It can be recorded as it is: all operands are of
// types and on devices that its row computes on, and what it writes has an element for each place.
std::optional<OtherForm> find_other_form(const Op& row, Convention convention, const BoxedCall& call);

} // namespace torch_xla
