// Marks of composites, and custom calls: torch_xla/experimental/xla_marker.py and stablehlo_custom_call.py have the functions for users.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace torch_xla {

// A value's place in a composite. Marks of one composite have the same name and id.
struct Mark {
  std::string name;
  int64_t position = 0; // among the composite's inputs or outputs
  std::string id; // no part of a program
  bool is_input = true;
  std::string attributes; // of an output: an MLIR dictionary; empty: none
};

// A new tensor of the same value and strides. An output whose composite has no inputs in the present trace is no part of a composite: they
// were marked before a sync, or not at all. Throws UserError (Value) for a tensor of another kind of device, and for a negative position.
at::Tensor mark_tensor(const at::Tensor& tensor, const Mark& mark);

struct CustomCall {
  std::string target;
  std::vector<std::vector<int64_t>> shapes; // of the results
  std::vector<c10::ScalarType> dtypes; // parallel to `shapes`
  bool has_side_effect = false;
  std::string backend_config;
  int64_t api_version = 0; // as XLA numbers them; 0: unspecified
  std::map<std::string, std::string> frontend_attributes;
};

// Records the call on the operands' device, the thread's own if there are none. Throws UserError: (Value) for operands of several devices
// or of another kind of device, for shapes and dtypes of different number; (Type) for a dtype that programs do not compute.
std::vector<at::Tensor> custom_call(const std::vector<at::Tensor>& operands, const CustomCall& call);

// The schema of custom calls, and the embedded engine's kernel, which raises. register_kernels() calls it.
void register_custom_calls();

} // namespace torch_xla
