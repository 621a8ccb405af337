// Turns a fused step into the code generator's KernelSpec and the places of its buffers.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/cpu/kernel.h"
#include "engine/cpu/schedule/fuse.h"

namespace torch_xla::cpu {

// The place of KernelSpec::buffers[i]: offsets are not part of the code, so slices of one shape share it.
struct KernelOperand {
  ValueId value = kNoValue; // a value at that place
  ValueId root = kNoValue;
  int64_t byte_offset = 0;
  int32_t moved_by = -1; // Place::moved_by
  bool written = false;
};

struct BuiltKernel {
  KernelSpec spec;
  std::vector<KernelOperand> operands; // parallel to spec.buffers
  std::vector<int32_t> scalars; // parallel to spec.scalars: position among Graph::scalars
  // Pairs {loaded, stored} of buffers with the same address function; each element is read for the last time before it is written.
  std::vector<std::pair<int32_t, int32_t>> in_place;
  int64_t grain = 0; // units that are worth a thread
};

BuiltKernel build_kernel(const LaidOutGraph& laid_out, const Step& step);

// For each instruction of a kernel: the length of the chain of reductions that it needs. In a row kernel that is its sweep over the row.
std::vector<int> find_sweeps(const std::vector<Instr>& body);

} // namespace torch_xla::cpu
