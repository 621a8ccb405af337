// Turns a fused step into the code generator's KernelSpec and says which memory its buffers are.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/cpu/fuse.h"
#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

// Where KernelSpec::buffers[i] is: offsets are no part of the code, so that slices of one shape share it.
struct KernelOperand {
  ValueId root = kNoValue;
  int64_t byte_offset = 0;
  bool written = false;
};

struct BuiltKernel {
  KernelSpec spec;
  std::vector<KernelOperand> operands; // parallel to spec.buffers
  std::vector<int32_t> scalars; // parallel to spec.scalars: position among Graph::scalars
  // Pairs {loaded, stored} of buffers with one address function, where each element is read for the last time before it is written.
  std::vector<std::pair<int32_t, int32_t>> in_place;
  int64_t work = 0; // about one per simple operation on an element
};

BuiltKernel build_kernel(const LaidOutGraph& laid_out, const Step& step);

} // namespace torch_xla::cpu
