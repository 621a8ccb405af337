// Special treatment of library rows by this engine: kernels in ATen's place, forms in place, preparation, and numbers of threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <string_view>
#include <vector>

#include "engine/cpu/library/call.h"
#include "engine/cpu/library/packed.h"

namespace torch_xla::cpu {

// Computes the results of a call into `outs`, which are row-major. A barrier's out may be the operand; others are not.
using CallKernel = void (*)(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

struct Substitute {
  const char* row = nullptr;
  CallKernel (*choose)(const CallSpec& call) = nullptr; // the kernel for this call, or null: ATen's
  bool (*suits)(const std::vector<at::Tensor>& operands) = nullptr; // whether it may read these; if not, ATen's raises
  Work (*work_of_kernel)(CallKernel kernel, const CallSpec& call) = nullptr; // the work of that kernel; null: none
  bool is_faster_only = false; // that kernel gives ATen's values
  // Called before a kernel: raises ATen's error for arguments that the kernel does not check, or changes arguments that it would misread.
  void (*prepare)(torch::jit::Stack& arguments) = nullptr;
  // Whether ATen's kernel runs in grad mode, to keep the values that a gradient needs.
  bool (*trains)(const CallSpec& call) = nullptr;
  bool (*is_short)(const CallSpec& call) = nullptr; // whether its parallel regions are too short to be worth their barriers: one thread
  Work (*work)(const CallSpec& call) = nullptr; // of ATen's kernel; if null, none
  const Packing* packing = nullptr; // of one of its operands
  bool one_thread = false; // the kernel opens many short parallel regions: several calls are faster beside each other, on a thread each
  bool outside_pool = false; // most of ATen's temporaries are no tensors: those that are would stay in the pool beside them
};

// Empty for rows without special treatment.
Substitute find_substitute(std::string_view row);

} // namespace torch_xla::cpu
