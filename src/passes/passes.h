// The passes, in the order in which pipeline.cpp runs them.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace torch_xla {

// Which library rows and composites an engine runs as they are; the others are expanded.
using KeepLibrary = bool (*)(const Op& op);
bool keep_all(const Op& op); // library rows

// Which library calls of 16-bit floats an engine computes in float32.
using WidenCall = bool (*)(const Graph& graph, const Node& call);

// Whether an engine multiplies 8-bit integers, in products of this type with sums of `inner` numbers, as they are stored, no slower than
// after their conversion to the type.
using ReadsIntegers = bool (*)(DType dtype, int64_t rows, int64_t inner);

// Makes composites of marks: outline().
using Outline = std::optional<Graph> (*)(const Graph& trace);

// What an engine computes together with a convolution of a trace, as xla::fused_convolution: an evaluated batch norm and an activation, or
// a sum with another tensor before the activation, too.
enum class ConvolutionFusion : uint8_t { kNone, kActivation, kSum };
using FuseConvolution = ConvolutionFusion (*)(const Graph& trace, const Node& node);

struct EngineRules {
  KeepLibrary keeps = keep_all;
  Outline outlines = nullptr; // null: marks are their operands
  WidenCall widens = nullptr; // null: none
  ReadsIntegers reads_integers = nullptr; // null: never
  bool convolves_integers = false; // the engine has xla::quantized_convolution
  bool narrow_products = true; // the engine multiplies 16-bit floats faster than float32
  FuseConvolution fuses = nullptr; // null: none
  int64_t most_scores = 0; // of attention at a time; 0: no limit
};

// Trace -> trace with parameters, results and outputs of the types in which the device stores them. Operations compute on the types that
// tensors report, and round their results once. Operations that move or draw elements take the stored types, and with `narrow_products`
// also sums of products. Scalars and parameters keep their positions.
Graph narrow(const Graph& trace, FloatStorage storage, bool narrow_products);
// Trace -> trace in which sums of `a` and zeros with a part written (the gradient of a slice) add to that part of `a` only; nothing if the
// trace has no such sum. The sign of a zero may change: -0.0 stays where +0.0 would have been added.
std::optional<Graph> add_into_parts(const Graph& trace);
// Trace -> trace in which each part between the marked inputs and outputs of a composite is one node, xla::composite, with that part as its
// decomposition; nothing if the trace has none. Operands of the node: the marked inputs in their order, then other tensors that the part
// reads, then numbers that are no constants of the composite: seeds of draws. What else needs values of the part computes them outside,
// too. Marks that belong to no composite stay.
std::optional<Graph> outline(const Graph& trace);
// Trace -> trace in which attention without a mask, of more scores, is a loop over blocks of queries, and its gradient too; nothing if the
// trace has none.
std::optional<Graph> attention_in_turns(const Graph& trace, int64_t most_scores);
// Trace -> trace in which the chosen convolutions without a gradient are one node, xla::fused_convolution, with the evaluated batch norm,
// the sum and the activation that alone read their results; nothing if `fuses` chooses none.
std::optional<Graph> fuse_convolutions(const Graph& trace, FuseConvolution fuses);
// Trace (ATen rows) -> graph of primitives, views and library calls. Nodes that no output needs are left out; fixed scalars become
// constants, the others and the parameters keep their order. With fusion off the expansion is the same. Throws UserError(NotImplemented)
// naming a row that is not kept and has no expansion.
Graph lower(const Graph& trace, KeepLibrary keeps = keep_all);
// The same graph with float32 operands and results of the chosen calls in place of 16-bit floats: separate nodes convert operands and round
// results.
Graph widen(const Graph& graph, WidenCall widens);
// The same graph with products that take 8-bit integers as they are stored in place of those that take their conversions: _int_mm for
// products in int32 of two converted operands, _weight_int8pack_mm for those of floats by a converted matrix. Nothing if it has no such
// product.
std::optional<Graph> integer_products(const Graph& graph, ReadsIntegers reads);
// The same graph with xla::quantized_convolution in place of convolutions whose input (uint8) and weight (int8, with a scale for each
// channel) are integers, less a zero, times a scale. Nothing if it has none.
std::optional<Graph> integer_convolutions(const Graph& graph);
// Local rewrites: identities that hold for every value (x*1, x/1, double negation and conversion, views of views, select of a constant,
// view that changes nothing), constant folding.
void simplify(Graph& graph);
// Keys and values of attention as they were before they were repeated for the heads of a group.
void share_heads(Graph& graph);
// Common subexpressions: equal op, operands and attributes. Random bits are equal when their seed and offset are.
void cse(Graph& graph);
// Removes nodes without a use.
void eliminate_dead_code(Graph& graph);

// All of the above on a trace, a verifier after each with env::verify(), and dumps of each stage at XLA_DEBUG>=3. The device is for the
// events.
Graph run_passes(const Graph& trace, int device, const EngineRules& rules = {});
// The same without narrow(), for a loop's body: its values have the types that tensors report.
Graph run_passes_on_body(const Graph& body, int device, const EngineRules& rules = {});

} // namespace torch_xla
