// Offsets of a trace's views: constants of its program, or numbers that each run gives.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace torch_xla {

// `x[i]`, `buffer[i] = y` and `data[i * 16 : (i + 1) * 16]` in a loop make traces that differ only in view offsets. The first trace's
// program has constant offsets; from the second trace on, differing offsets are numbers of the program. Offsets equal in all traces share a
// number, so that their views are one. Order of offsets: the trace's views and view updates.
class OffsetPattern {
 public:
  // All offsets are constants.
  explicit OffsetPattern(std::vector<int64_t> offsets) : fixed_(std::move(offsets)), number_(fixed_.size(), -1) {}
  // With numbers for the offsets that differ here, too. `offsets` has the length of the pattern.
  OffsetPattern widened(const std::vector<int64_t>& offsets) const;
  bool matches(const std::vector<int64_t>& offsets) const;
  // The numbers, as i64 bits, for a run of a matching trace.
  std::vector<uint64_t> numbers(const std::vector<int64_t>& offsets) const;
  // Makes a trace's graph serve all matching traces: numbers after its own move the views.
  void apply(Graph& graph) const;

 private:
  std::vector<int64_t> fixed_; // of a number: the offset when the pattern was made
  std::vector<int32_t> number_; // -1: fixed
  int32_t num_numbers_ = 0;
};

} // namespace torch_xla
