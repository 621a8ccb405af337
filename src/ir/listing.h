// A graph in the original's text form and for graphviz, for readers of the original's dumps. parse_graph() reads only the form of
// print_graph().
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "ir/graph.h"

namespace torch_xla {

struct ListingOptions {
  std::string device; // "CPU:0": where parameters lie
  std::span<const uint64_t> scalars = {}; // by position: the bits of a double or int64; empty: not known
  std::function<std::string(int32_t)> location = {}; // the user's line of a Node::location; may be empty
};

// The nodes that the outputs need, each behind its operands:
//   IR {
//     %0 = f32[4,4]{1,0} xla::device_data(), xla_shape=f32[4,4]{1,0}, device=CPU:0
//     %1 = f32[4,4]{1,0} aten::mm(%0, %0), xla_shape=f32[4,4]{1,0}, location=train.py:12 in forward, ROOT=0
//   }
std::string list_graph(const Graph& graph, const ListingOptions& options);
// The same as a digraph.
std::string list_dot(const Graph& graph, const ListingOptions& options);
// "f32[4,4]{1,0}", by XLA's names of types.
std::string shape_text(const Type& type);
// "f32", "s64", "pred".
std::string xla_type_name(DType dtype);

} // namespace torch_xla
