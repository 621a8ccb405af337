// Special treatment of library rows by this engine: kernels in ATen's place, forms in place, preparation, and numbers of threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "engine/cpu/library/call.h"
#include "engine/cpu/library/packed.h"

namespace torch_xla::cpu {

// Computes the results of a call into `outs`, which lie as ATen's. A barrier's out may be the operand; others are not.
class CallKernel {
 public:
  using Tensors = std::vector<at::Tensor>;

  constexpr CallKernel(std::nullptr_t = nullptr) {}
  constexpr CallKernel(void (*plain)(const Tensors& operands, const Tensors& outs)) : plain_(plain) {}
  constexpr CallKernel(void (*of_attrs)(const Tensors& operands, const Tensors& outs, const Attrs& attrs)) : of_attrs_(of_attrs) {}

  explicit operator bool() const {
    return plain_ || of_attrs_;
  }
  bool operator==(const CallKernel&) const = default;
  void operator()(const Tensors& operands, const Tensors& outs, const Attrs& attrs) const {
    plain_ ? plain_(operands, outs) : of_attrs_(operands, outs, attrs);
  }

 private:
  void (*plain_)(const Tensors& operands, const Tensors& outs) = nullptr;
  void (*of_attrs_)(const Tensors& operands, const Tensors& outs, const Attrs& attrs) = nullptr;
};

struct Substitute {
  const char* row = nullptr;
  CallKernel (*choose)(const CallSpec& call) = nullptr; // the kernel for this call, or null: ATen's
  bool (*suits)(const std::vector<at::Tensor>& operands) = nullptr; // whether it may read these; if not, ATen's raises
  Work (*work_of_kernel)(CallKernel kernel, const CallSpec& call) = nullptr; // the work of that kernel; null: none
  bool is_faster_only = false; // that kernel gives ATen's values
  // Whether that kernel reads 16-bit floats, with any strides; null: no. Otherwise slow processors compute the call in float32.
  bool (*reads_halves)(const Graph& graph, const Node& call) = nullptr;
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

// A tensor as an operand or a result of a call.
CallSpec::Tensor as_spec(const at::Tensor& t);

// Empty for rows without special treatment.
Substitute find_substitute(std::string_view row);

} // namespace torch_xla::cpu
