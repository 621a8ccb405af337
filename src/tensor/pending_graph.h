// What is pending of given tensors, as a graph and as text.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "tensor/capture.h"
#include "tensor/trace.h"

namespace torch_xla {

enum class GraphFormat : uint8_t {
  kText, // the original's IR
  kDot, // the same for graphviz
  kHlo, // XLA's
  kStableHlo, // what plugins compile
};
// "text", "dot", "hlo" or "stablehlo". Throws UserError (Value) for another name.
GraphFormat find_graph_format(const std::string& name);

// What is pending of the tensors, all of which are of the device, or of all that live on it where there are none. Changes
// nothing. Throws UserError (Value) for a tensor that is elsewhere, (NotImplemented) for an operation that has no StableHLO form.
std::string pending_text(int device, const std::vector<at::Tensor>& tensors, GraphFormat format);
// StableHLO of a recorded body: a function of its parameters, in their order and of the types that tensors report; its numbers are
// constants. Throws UserError (NotImplemented) for an operation that has no StableHLO form, and for a body that draws random numbers.
std::string body_text(int device, const Body& body);
// What a tensor is right now, in the original's words: its numbers, shape, pending operation or data.
std::string tensor_text(const at::Tensor& tensor);

// Whether XLA_SAVE_TENSORS_FILE names a file; then save_graph() appends the graph of a sync to it. The caller holds the recording lock.
// Throws UserError (Value) for a form that is not known and a file that cannot be written.
bool saves_graphs();
void save_graph(int device, const Trace& trace, const std::vector<ValueId>& outputs);

} // namespace torch_xla
