// The attributes of operations as HLO text has them.
#pragma once

#include "stablehlo/text.h"

namespace torch_xla::stablehlo {

// "dimensions={0, 1}, ...", without computations; empty without attributes.
std::string hlo_attributes(const std::string& opcode, const Hlos& operands, const Attributes& attributes);
// For broadcast_in_dim: the result's dim for each dim of the operand.
Dims broadcast_mapping(const Attributes& attributes);
// The text with each `from` replaced by `to`.
std::string replaced(std::string text, const std::string& from, const std::string& to);

} // namespace torch_xla::stablehlo
