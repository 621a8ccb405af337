// Numbers of a trace: constants of its program, or groups of equal numbers, each one number of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace torch_xla {

// A plugin gets each number of a program as a buffer, and its compiler cannot fold it. So numbers that have had one value in all runs are
// constants. Of the others (the learning rate, seeds) those that were equal in all runs are one number: Adam over 200 tensors takes 1,200
// numbers, six of them different. A run in which a constant or a group does not hold needs another program. Numbers: F64 or I64 bits, in
// the order of the trace's Graph::scalars.
class NumberGroups {
 public:
  // Each number is a group, for any count of numbers.
  NumberGroups() = default;
  // Of a first program: the numbers in `changing` are in groups of equal dtype and value, the others are constants. The graph is the
  // trace's.
  static NumberGroups of_first_run(const Graph& graph, const std::vector<uint64_t>& numbers, const std::vector<bool>& changing);
  // A constant with another value in `numbers` becomes a number of the program; groups are split where `numbers` differ.
  NumberGroups refined(const Graph& graph, const std::vector<uint64_t>& numbers) const;
  // Whether the constants have these values and the numbers of each group are equal.
  bool hold(const std::vector<uint64_t>& numbers) const {
    return !find_misfit(numbers);
  }
  // The first number that does not hold.
  std::optional<size_t> find_misfit(const std::vector<uint64_t>& numbers) const;
  // The value that a number must have: of a constant, or of the first of its group.
  uint64_t wanted(size_t number, const std::vector<uint64_t>& numbers) const;
  // Appends a run's numbers, one for each group.
  void take(const std::vector<uint64_t>& numbers, std::vector<uint64_t>& taken) const;
  // Leaves one number of each group in a trace's graph, and the constants as Graph::fixed_scalars.
  void apply(Graph& graph) const;
  // Whether they may belong to a trace with this many numbers.
  bool fit(size_t count) const {
    return group_.empty() || group_.size() == count;
  }
  bool operator==(const NumberGroups&) const = default;

  template <typename Archive>
  friend void fields(Archive& archive, NumberGroups& groups) {
    archive(groups.group_, groups.value_, groups.first_);
  }

 private:
  static constexpr uint64_t kConstant = UINT64_MAX;

  // By number; empty: each is a group.
  std::vector<uint64_t> group_; // or kConstant
  std::vector<uint64_t> value_; // of a constant; else 0
  std::vector<uint64_t> first_; // by group: its first number
};

} // namespace torch_xla
