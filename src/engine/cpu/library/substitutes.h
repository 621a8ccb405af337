// Special treatment of library rows by this engine: kernels in ATen's place, forms in place, preparation, and numbers of threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <string_view>
#include <vector>

#include "engine/cpu/library/call.h"
#include "engine/cpu/library/packed.h"
#include "engine/cpu/library/parts.h"

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
  // Set if the result is operand 0 with some elements changed, computed by that kernel or by ATen's operation in place. Saves the old
  // elements.
  Undo (*save_part)(const torch::jit::Stack& arguments) = nullptr;
  bool (*is_short)(const CallSpec& call) = nullptr; // whether its parallel regions are not worth their barriers: one thread
  Work (*work)(const CallSpec& call) = nullptr; // the work of ATen's kernel; null: none
  const Packing* packing = nullptr; // packing of one operand
  bool one_thread = false; // many short parallel regions: several calls are faster beside each other, one thread each
  bool outside_pool = false; // few of ATen's temporaries are tensors: these would stay in the pool unused
};

// Empty for rows without special treatment.
Substitute find_substitute(std::string_view row);

} // namespace torch_xla::cpu
