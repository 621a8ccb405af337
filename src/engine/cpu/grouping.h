// The forward half of fusion: each node joins a group of nodes that one kernel computes, or gets one of its own.
#pragma once

#include <vector>

#include "engine/cpu/fuse.h"
#include "engine/cpu/recompute.h"

namespace torch_xla::cpu {

struct Group {
  Step::Kind kind = Step::Kind::kKernel;
  int32_t node = -1; // kLibrary, kUpdate
  Dims domain;
  uint32_t reduced = 0; // as Step::reduced
  bool column = false; // the reductions leave the dimension that is innermost in memory
  bool expensive = false; // has element values that are worth spilling
  int earliest = 0; // the first position at which all operands from outside exist
  std::vector<ValueId> values;
};

struct Groups {
  std::vector<Group> list; // in the order in which they run; one without values has been merged into another
  std::vector<int> of_value; // -1: parameters, scalars and views
};

// `enabled` false: every primitive has a group of its own.
Groups group_nodes(const LaidOutGraph& laid_out, const Recompute& recompute, bool enabled);

} // namespace torch_xla::cpu
