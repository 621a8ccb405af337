// The bytes of a graph.
#include "ir/archive.h"

#include <string_view>

namespace torch_xla {

std::string graph_key(const Graph& graph) {
  Writer out;
  out(graph.parameters,
      graph.parameter_strides,
      graph.parameter_shardings,
      graph.scalars,
      graph.outputs,
      graph.output_strides,
      static_cast<uint64_t>(graph.values.size()));
  out(static_cast<uint64_t>(graph.fixed_scalars.size()));
  for (const std::optional<uint64_t>& fixed : graph.fixed_scalars) {
    out(fixed.has_value(), fixed.value_or(0));
  }
  for (const Value& value : graph.values) {
    out(value.kind, value.index, value.type.dtype, value.type.dims);
  }
  for (const Node& node : graph.nodes) {
    out(std::string_view(node.op->name), node.op->kind, node.op->traits, node.operands, node.attrs, node.first_result, node.num_results);
  }
  return out.take();
}

} // namespace torch_xla
