// The difference of two traces: the number of common operations, and the first difference as a sentence.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "program/compile_reason.h"

namespace torch_xla {

// The number of nodes with the same operation: from the front, and from the back behind those.
struct Overlap {
  size_t front = 0;
  size_t back = 0;
};

Overlap compare_operations(const std::vector<Node>& a, const std::vector<Node>& b);

// The number of overlapping nodes that are equal in arguments and in the types of operands and results. `a`, `b`: the hashes of both
// traces, by node.
size_t count_equal_nodes(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b, const Overlap& overlap);

// Writes the first difference of a trace and an earlier one to the reason. `lines`, `lines_before`: the user's, by node.
void find_difference(
    const Graph& now,
    const std::vector<int64_t>& lines,
    const Graph& before,
    const std::vector<int64_t>& lines_before,
    CompileReason& reason);

} // namespace torch_xla
