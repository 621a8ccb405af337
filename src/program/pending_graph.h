// What is pending of given tensors, as a graph and as text.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trace/body.h"
#include "trace/trace.h"

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
// Equal for graphs of the same operations on inputs of the same types, whatever their values and numbers are, with high probability.
// Throws as pending_text().
Hash128 pending_hash(int device, const std::vector<at::Tensor>& tensors);
// The graph of a recorded body as `format` (kHlo, kStableHlo) has it: a function of its parameters, in their order and of the types that
// tensors report; its numbers are constants. Throws UserError (NotImplemented) for an operation that has no StableHLO form, and for a body
// that draws random numbers.
std::string body_text(int device, const Body& body, GraphFormat format);
// The name of the pending operation that computes the tensor; empty where none is pending. Throws UserError (Value) for a tensor that is
// elsewhere.
std::string pending_operation(const at::Tensor& tensor);
// Makes `location`, an id of location_text(), that of this operation, if there is one. Throws as pending_operation().
void set_location(const at::Tensor& tensor, int64_t location);
// What a tensor is right now, in the original's words: its numbers, shape, pending operation or data.
std::string tensor_text(const at::Tensor& tensor);

// Whether XLA_SAVE_TENSORS_FILE names a file; then save_graph() appends the graph of a sync to it. The caller holds the recording lock.
// Throws UserError (Value) for a form that is not known and a file that cannot be written.
bool saves_graphs();
void save_graph(int device, const Trace& trace, const std::vector<ValueId>& outputs);

} // namespace torch_xla
