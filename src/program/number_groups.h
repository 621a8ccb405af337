// Which numbers of a trace a program takes as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace torch_xla {

// Adam over 200 tensors takes 1,200 numbers, six different ones. A plugin is handed each number of a program as a buffer of its own, so
// that those that are equal in the first run are one number of its program. A later run in which they differ needs another program, where
// they are apart. Numbers are in the order of the trace's Graph::scalars, bits of F64 or I64.
class NumberGroups {
 public:
  // Each number by itself, however many there are.
  NumberGroups() = default;
  // As these groups, which may be of each number by itself, for numbers that are equal here, too. The graph is the trace's.
  NumberGroups refined(const Graph& graph, const std::vector<uint64_t>& numbers) const;
  // Those that are equal here. The graph is the trace's.
  static NumberGroups of_equal(const Graph& graph, const std::vector<uint64_t>& numbers);
  // Whether numbers of one group are equal here.
  bool hold(const std::vector<uint64_t>& numbers) const;
  // What a program of these groups takes of a run's numbers.
  std::vector<uint64_t> take(std::vector<uint64_t> numbers) const;
  // Makes a trace's graph that of such programs: of each group the first number is left.
  void apply(Graph& graph) const;

 private:
  std::vector<size_t> group_; // by number; empty: each by itself
  std::vector<size_t> first_; // by group: its first number
};

} // namespace torch_xla
