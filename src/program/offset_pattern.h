// Where the views of a trace begin: offsets that are part of its program, and those that each run gives.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace torch_xla {

// `x[i]`, `buffer[i] = y` and `data[i * 16 : (i + 1) * 16]` in a loop make traces that differ only in the offsets of views. The first one's
// program has its offsets; from the second one on those that differ are numbers of the program. Offsets that were equal in all traces
// share a number, so that their views are one. Offsets are in the order of the trace's views and view updates.
class OffsetPattern {
 public:
  // All are part of the program.
  explicit OffsetPattern(std::vector<int64_t> offsets) : fixed_(std::move(offsets)), number_(fixed_.size(), -1) {}
  // With those that differ here as numbers, too. As many as in this pattern.
  OffsetPattern widened(const std::vector<int64_t>& offsets) const;
  bool matches(const std::vector<int64_t>& offsets) const;
  // The numbers for a run of a trace that matches, i64 bits.
  std::vector<uint64_t> numbers(const std::vector<int64_t>& offsets) const;
  // Makes a trace's graph that of all that match: its views are moved by numbers, which it has behind its others.
  void apply(Graph& graph) const;

 private:
  std::vector<int64_t> fixed_; // of a number: as it was when the pattern was made
  std::vector<int32_t> number_; // -1: fixed
  int32_t num_numbers_ = 0;
};

} // namespace torch_xla
