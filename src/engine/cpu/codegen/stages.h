// Where each instruction of a kernel is computed: outside the loops, once per row, or in sweeps over the elements. No LLVM here.
#pragma once

#include <vector>

#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// The loops that a value varies with, as bits.
enum Varies : uint8_t { kFixed = 0, kOuter = 1, kMid = 2, kInner = 4 };

// One pass over the mid and inner loops. The lists are in SSA order.
struct Sweep {
  std::vector<int> mid_values; // computed as scalars once per step of the mid loops
  std::vector<int> values; // computed as vectors
  std::vector<int> reloads; // vectors read from the scratch memory of the row
  std::vector<int> spills; // of values: also written to the scratch memory
  std::vector<int> reduces;
  std::vector<int> mid_stores;
  std::vector<int> stores;
};

// A kernel has stages 0 to n: each computes its scalars, then runs its sweep; the reductions of sweep s are scalars of stage s + 1. In
// kColumn the last "sweep" is the computation after the mid loops, once per block.
struct Stages {
  std::vector<uint8_t> varies;
  std::vector<int> fixed; // computed at entry: values that vary with nothing
  std::vector<int> fixed_stores;
  std::vector<std::vector<int>> row_values; // by stage
  std::vector<std::vector<int>> row_stores;
  std::vector<Sweep> sweeps; // by stage
  std::vector<int> scratch_slot; // by instruction: its index in scratch_types, or -1
  std::vector<DType> scratch_types; // one array of mid * inner elements each
};

Stages find_stages(const KernelSpec& spec);

} // namespace torch_xla::cpu
