// What this engine computes in ATen's place or in place, or sees to before ATen computes, and on how many threads: by row.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <string_view>
#include <vector>

#include "engine/cpu/library/call.h"
#include "engine/cpu/library/packed.h"
#include "engine/cpu/library/parts.h"

namespace torch_xla::cpu {

// Computes the results of a call into `outs`, which are row-major. A barrier's may be the operand itself, others are no operands.
using CallKernel = void (*)(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

struct Substitute {
  const char* row = nullptr;
  CallKernel (*choose)(const CallSpec& call) = nullptr; // the kernel for this call, or null: ATen's
  bool (*suits)(const std::vector<at::Tensor>& operands) = nullptr; // whether that kernel may read these: if not, ATen's raises its error
  Work (*work_of_kernel)(CallKernel kernel, const CallSpec& call) = nullptr; // of that kernel; if null, none
  bool is_faster_only = false; // that kernel computes what ATen's does
  // Before a kernel: raises ATen's error for what the kernel takes without a look, or changes arguments that it would misread.
  void (*prepare)(torch::jit::Stack& arguments) = nullptr;
  // Whether ATen's kernel, which asks the grad mode, shall keep what a gradient needs.
  bool (*trains)(const CallSpec& call) = nullptr;
  // The result is operand 0 but for some elements: that kernel, or ATen's operation in place, computes it. What these held is saved by
  // this.
  Undo (*save_part)(const torch::jit::Stack& arguments) = nullptr;
  bool (*is_short)(const CallSpec& call) = nullptr; // whether its parallel regions are too short to be worth their barriers: one thread
  Work (*work)(const CallSpec& call) = nullptr; // of ATen's kernel; if null, none
  const Packing* packing = nullptr; // of one of its operands
  bool one_thread = false; // the kernel opens many short parallel regions: several calls are faster beside each other, on a thread each
  bool outside_pool = false; // most of ATen's temporaries are no tensors: those that are would stay in the pool beside them
};

// Nothing for rows that are ATen's alone.
Substitute find_substitute(std::string_view row);

} // namespace torch_xla::cpu
