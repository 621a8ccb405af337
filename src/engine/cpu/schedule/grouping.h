// The forward half of fusion: each node joins a group, computed by one kernel, or gets its own.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cpu/place.h"
#include "engine/cpu/schedule/recompute.h"

namespace torch_xla::cpu {

// The kind of step of a group: a fused kernel, a call of ATen's, a copy into a part of memory. Ordering splits a call that runs beside
// others into two steps.
enum class StepKind : uint8_t { kKernel, kLibrary, kUpdate, kStart, kWait };

struct Group {
  StepKind kind = StepKind::kKernel;
  int32_t node = -1; // kLibrary, kUpdate
  Dims domain;
  uint32_t reduced = 0; // as Step::reduced
  bool column = false; // the reductions keep the innermost dimension in memory
  bool expensive = false; // has element values worth spilling
  int earliest = 0; // the first position at which all operands from outside exist
  std::vector<ValueId> values;
};

struct Groups {
  std::vector<Group> list; // in the order of their runs; a group without values was merged into another
  std::vector<int> of_value; // -1: parameters, scalars and views
};

// Extents without leading 1s, and the same padded to a rank.
Dims strip_leading_ones(const Dims& dims);
Dims align_dims(const Dims& dims, size_t rank);
// The domain with the reduced extents as 1: the dims of the reductions' results.
Dims row_dims(Dims domain, uint32_t reduced);

// `enabled` false: every primitive has a group of its own.
Groups group_nodes(const LaidOutGraph& laid_out, const Recompute& recompute, bool enabled);

} // namespace torch_xla::cpu
