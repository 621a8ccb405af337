// Constant folding: the value of a primitive over constants, rounded as the run would round.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace torch_xla {

// The attribute of v if v is a constant or a broadcast constant; else null.
const Attr* find_constant(const Graph& graph, ValueId v);
// The value of a node over constants, as the attribute of a constant of the node's type; nothing for other primitives, for results that
// depend on the hardware (division by zero, conversion out of range) and for results with dims.
std::optional<Attr> fold_node(const Graph& graph, const Node& node);

} // namespace torch_xla
