// Constant folding: what a primitive makes of constants, rounded as the run would round.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace torch_xla {

// The attribute of v where v is a constant or a constant broadcast; else null.
const Attr* find_constant(const Graph& graph, ValueId v);
// The value of a node over constants, as the attribute of a constant of the node's type; nothing where it is not folded: other primitives,
// results that the hardware decides (division by zero, conversion out of range), results with dims.
std::optional<Attr> fold_node(const Graph& graph, const Node& node);

} // namespace torch_xla
