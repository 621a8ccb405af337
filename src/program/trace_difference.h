// In what two traces differ: how many operations they have in common, and the first difference as a sentence.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "program/compile_reason.h"

namespace torch_xla {

// How many nodes from the front, and behind them from the back, have the same operation.
struct Overlap {
  size_t front = 0;
  size_t back = 0;
};

Overlap compare_operations(const std::vector<Node>& a, const std::vector<Node>& b);

// Of the nodes that have the same operation, those that are equal in their arguments, and in the types of what they take and give. By node:
// the hashes of both traces.
size_t count_equal_nodes(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b, const Overlap& overlap);

// The first difference of a trace and an earlier one, into the reason. `lines` and `lines_before`: the user's, by node.
void find_difference(
    const Graph& now,
    const std::vector<int64_t>& lines,
    const Graph& before,
    const std::vector<int64_t>& lines_before,
    CompileReason& reason);

} // namespace torch_xla
