// Turns a fused step into the code generator's KernelSpec and says which memory its buffers are.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/cpu/kernel.h"
#include "engine/cpu/schedule/fuse.h"

namespace torch_xla::cpu {

// Where KernelSpec::buffers[i] is: offsets are no part of the code, so that slices of one shape share it.
struct KernelOperand {
  ValueId value = kNoValue; // one that lies there
  ValueId root = kNoValue;
  int64_t byte_offset = 0;
  int32_t moved_by = -1; // Place::moved_by
  bool written = false;
};

struct BuiltKernel {
  KernelSpec spec;
  std::vector<KernelOperand> operands; // parallel to spec.buffers
  std::vector<int32_t> scalars; // parallel to spec.scalars: position among Graph::scalars
  // Pairs {loaded, stored} of buffers with one address function, where each element is read for the last time before it is written.
  std::vector<std::pair<int32_t, int32_t>> in_place;
  int64_t grain = 0; // units that are worth a thread
};

BuiltKernel build_kernel(const LaidOutGraph& laid_out, const Step& step);

// By instruction of a kernel: the number of reductions that it waits for, one after the other. In a row kernel that is the sweep over the
// row in which it is computed.
std::vector<int> find_sweeps(const std::vector<Instr>& body);

} // namespace torch_xla::cpu
