// Groups of a trace's numbers, each one number of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace torch_xla {

// Adam over 200 tensors takes 1,200 numbers, six of them different. A plugin gets each number of a program as a buffer, so numbers that are
// equal in the first run become one number of its program. A later run in which they differ needs another program. Numbers: F64 or I64
// bits, in the order of the trace's Graph::scalars.
class NumberGroups {
 public:
  // Each number is a group, for any count of numbers.
  NumberGroups() = default;
  // These groups, split where `numbers` differ. The graph is the trace's.
  NumberGroups refined(const Graph& graph, const std::vector<uint64_t>& numbers) const;
  // A group for each dtype and value of `numbers`. The graph is the trace's.
  static NumberGroups of_equal(const Graph& graph, const std::vector<uint64_t>& numbers);
  // Whether the numbers of each group are equal.
  bool hold(const std::vector<uint64_t>& numbers) const;
  // A run's numbers, one for each group.
  std::vector<uint64_t> take(std::vector<uint64_t> numbers) const;
  // Removes all but the first number of each group from a trace's graph.
  void apply(Graph& graph) const;

 private:
  std::vector<size_t> group_; // by number; empty: each is a group
  std::vector<size_t> first_; // by group: its first number
};

} // namespace torch_xla
