// Calls with constant weights. oneDNN copies a weight into an order of its own in each call; a packed weight is copied once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

#include "engine/cpu/library/call.h"

namespace torch_xla::cpu {

struct Packed {
  at::Tensor weight; // in oneDNN's own order
  std::optional<at::Tensor> bias; // of a convolution
};

// How calls of a row compute with packed operands, to the same bits as without. `arguments` are those of ATen's operation; functions that
// read only sizes take tensors without memory.
struct Packing {
  OperandRange (*operands)(size_t num_operands); // positions of the packed operands; the first one is the weight
  bool (*fits)(const CallSpec& call, const torch::jit::Stack& arguments); // whether oneDNN computes the call and accepts packed operands
  Packed (*pack)(const torch::jit::Stack& arguments);
  bool (*reads_weight)(const CallSpec& call); // whether compute() reads the weight as it was, too; null: no
  at::Tensor (*unpack)(const Packed& packed, at::IntArrayRef sizes); // the weight again; null if it cannot be had
  // `only`: whether it leaves the weight as it was alone.
  at::Tensor (*compute)(const torch::jit::Stack& arguments, const Packed& packed, bool only);
  Hash128 (*key)(const CallSpec& call); // hash of everything that the packed operands depend on except their numbers
};

// As LibraryCall::find_unpack(), for an operand of this form.
std::function<void(void* to)> find_unpack(const Packing& packing, const PackedRef& packed, const at::Tensor& form, const void* operand);

// mm and addmm (beta and alpha 1): the last operand.
extern const Packing kPackedMatrix;

// Whether a call of kPackedMatrix may be packed and leaves so few rows beyond oneDNN's part that the packed weight multiplies them fastest.
// An unpacked weight would be packed in each run, so it pays where CallSpec::weight_stays.
bool has_packed_rest(const CallSpec& call);
// Whether the value is a parameter, or a view of one, that only library calls read.
bool weight_stays(const Graph& graph, ValueId weight);
// A CallKernel for such a call: packs the weight, then computes as kPackedMatrix.
void multiply_packing(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& outs);

// xla::fused_convolution: the weight and all that is folded into it.
extern const Packing kPackedConvolution;

// An operator of torch.compile's frozen graphs.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

// Of a convolution, operands images and weight: oneDNN's order depends on the images' sizes too.
Hash128 key_of_convolution(const CallSpec& call);

} // namespace torch_xla::cpu
