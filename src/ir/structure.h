// Hashes of graphs: of the whole graph, and of its structure without numbers, which traces of one program at different sizes share.
#pragma once

#include "core/hash.h"
#include "ir/graph.h"

namespace torch_xla {

// Hash of everything except source lines and strides. The same in each process.
Hash128 hash_graph(const Graph& graph);

// Hash of the operations, their operands and outputs, dtypes, and of dims and attributes without their numbers. The same in each process.
Hash128 structure_of(const Graph& graph);

} // namespace torch_xla
