// The pending graph of given tensors, as a graph and as text.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "program/program_cache.h"
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

// The pending graph of the tensors, all on the device; without tensors, of all live ones on it. Changes nothing. Throws UserError (Value)
// for a tensor elsewhere, (NotImplemented) for an operation without a StableHLO form.
std::string pending_text(int device, const std::vector<at::Tensor>& tensors, GraphFormat format);
// Equal for graphs with the same operations on the same input types, for any values and numbers; different otherwise with high probability.
// Throws as pending_text().
Hash128 pending_hash(int device, const std::vector<at::Tensor>& tensors);
// The graph of a recorded body in `format` (kHlo, kStableHlo): a function of its parameters, in their order, with the types that tensors
// report; numbers are constants. Throws UserError (NotImplemented) for an operation without a StableHLO form, and for a body that draws
// random numbers.
std::string body_text(int device, const Body& body, GraphFormat format);
// Name of the pending operation that computes the tensor; empty: none. Throws UserError (Value) for a tensor elsewhere.
std::string pending_operation(const at::Tensor& tensor);
// Sets the location of this operation, if there is one, to `location`, an id of location_text(). Throws as pending_operation().
void set_location(const at::Tensor& tensor, int64_t location);
// The tensor's current state in the original's words: its numbers, shape, pending operation or data.
std::string tensor_text(const at::Tensor& tensor);

// Whether XLA_SAVE_TENSORS_FILE names a file; then save_graph() appends the graph of a sync to it. The caller holds the recording lock.
// Throws UserError (Value) for an unknown format or an unwritable file.
bool saves_graphs();
void save_graph(int device, const Trace& trace, const std::vector<ValueId>& outputs);
// Appends to it the shardings of the results, as the compiler of the found program chose them. The formats hlo and stablehlo have them, on
// several devices.
void save_output_shardings(int device, const Trace& trace, const Program& program);

} // namespace torch_xla
