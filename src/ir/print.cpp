// Text form of a graph. Ids are the graph's own, so that a printed graph is read back value for value.
#include <algorithm>

#include "ir/graph.h"

namespace torch_xla {
namespace {

std::string id_text(ValueId v) {
  return v == kNoValue ? "none" : "%" + std::to_string(v);
}

void print_input(const Graph& graph, ValueId v, std::string& out) {
  const Value& value = graph.values[v];
  out += id_text(v) + ": ";
  if (value.kind == ValueKind::kScalar) {
    out += std::string(dtype_name(value.type.dtype)) + " scalar";
    if (std::optional<uint64_t> fixed = graph.fixed_scalar(static_cast<size_t>(value.index))) {
      out += " = " + attr_text(number_attr(value.type.dtype, *fixed));
    }
    return;
  }
  out += type_text(value.type);
  const Dims& strides = graph.parameter_strides[value.index];
  if (!strides.empty()) {
    out += dims_text(strides, '{', '}');
  }
}

void print_header(const Graph& graph, std::string& out) {
  std::vector<ValueId> inputs = graph.parameters;
  inputs.insert(inputs.end(), graph.scalars.begin(), graph.scalars.end());
  std::sort(inputs.begin(), inputs.end());
  out += "graph(";
  for (size_t i = 0; i < inputs.size(); ++i) {
    out += i ? ", " : "";
    print_input(graph, inputs[i], out);
  }
  out += ") {\n";
}

void print_ids(std::span<const ValueId> ids, std::string& out) {
  for (size_t i = 0; i < ids.size(); ++i) {
    out += (i ? ", " : "") + id_text(ids[i]);
  }
}

void print_attrs(const Attrs& attrs, std::string& out) {
  if (attrs.empty()) {
    return;
  }
  out += " {";
  for (size_t i = 0; i < attrs.size(); ++i) {
    out += (i ? ", " : "") + attr_text(attrs[i]);
  }
  out += '}';
}

void print_node(const Graph& graph, const Node& node, std::string& out) {
  for (int32_t i = 0; i < node.num_results; ++i) {
    out += (i ? ", " : "  ") + id_text(node.result(i)) + ": " + type_text(graph.type(node.result(i)));
  }
  out += std::string(" = ") + node.op->name + "(";
  print_ids({node.operands.data(), node.operands.size()}, out);
  out += ')';
  print_attrs(node.attrs, out);
  out += '\n';
}

} // namespace

std::string print_graph(const Graph& graph) {
  std::string out;
  print_header(graph, out);
  for (const Node& node : graph.nodes) {
    print_node(graph, node, out);
  }
  out += graph.outputs.empty() ? "  return" : "  return ";
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Dims strides = graph.strides_of_output(i);
    out += (i ? ", " : "") + id_text(graph.outputs[i]) + (strides.empty() ? "" : dims_text(strides, '{', '}'));
  }
  out += "\n}\n";
  return out;
}

} // namespace torch_xla
