// Primitives as StableHLO.
#pragma once

#include "ir/graph.h"
#include "stablehlo/hlo.h"

namespace torch_xla::stablehlo {

// Writes a primitive node other than kRandomBits. Operands are parallel to the node's.
Hlo write_primitive(Text& text, const Node& node, const Hlos& operands, const Type& result);

} // namespace torch_xla::stablehlo
