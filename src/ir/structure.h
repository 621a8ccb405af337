// Hashes of graphs: of all that is in one, and of what is left without its numbers, as traces of one program at different sizes have one
// structure.
#pragma once

#include "core/hash.h"
#include "ir/graph.h"

namespace torch_xla {

// Of all but source lines and strides. The same in each process.
Hash128 hash_graph(const Graph& graph);

// Of the operations, their operands and outputs, dtypes, and of dims and attributes all but the numbers. The same in each process.
Hash128 structure_of(const Graph& graph);

} // namespace torch_xla
