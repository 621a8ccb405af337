// Entries of a listing: inputs at their first use, nodes in the order of the graph.
#include "ir/listing.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/errors.h"

namespace torch_xla {
namespace {

std::string value_text(DType dtype, uint64_t bits) {
  return is_float(dtype) ? str(std::bit_cast<double>(bits)) : str(static_cast<int64_t>(bits));
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    out += c == '"' || c == '\\' ? str('\\', c) : std::string(1, c);
  }
  return out;
}

class Listing {
 public:
  struct Entry {
    std::string shape;
    std::string name;
    std::vector<std::string> tags;
    std::vector<ValueId> operands; // those that are given
  };

  Listing(const Graph& graph, const ListingOptions& options) : graph_(graph), options_(options), entry_of_(graph.values.size(), -1) {
    std::vector<bool> live = find_live_nodes(graph);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (live[i]) {
        add_node(graph.nodes[i]);
      }
    }
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      add_input(graph.outputs[i]);
      entries_[entry_of_[graph.outputs[i]]].tags.push_back(str("ROOT=", i));
    }
  }

  const std::vector<Entry>& entries() const {
    return entries_;
  }
  int32_t entry_of(ValueId v) const {
    return entry_of_[v];
  }
  // The suffix of one of several results: ".1".
  std::string result_suffix(ValueId v, const char* before) const {
    const Node* node = graph_.find_producer(v);
    return node && node->num_results > 1 ? str(before, v - node->first_result) : std::string();
  }

 private:
  void add(ValueId first, int32_t count, Entry entry) {
    std::fill_n(entry_of_.begin() + first, count, static_cast<int32_t>(entries_.size()));
    entry.tags.insert(entry.tags.begin(), "xla_shape=" + entry.shape);
    entries_.push_back(std::move(entry));
  }

  // Lists a parameter or number; does nothing for a listed value or a node's result.
  void add_input(ValueId v) {
    const Value& value = graph_.values[v];
    if (entry_of_[v] >= 0 || value.kind == ValueKind::kResult) {
      return;
    }
    Entry entry{shape_text(value.type), "xla::device_data", {"device=" + options_.device}, {}};
    if (value.kind == ValueKind::kScalar) {
      entry = {shape_text(value.type), "prim::Constant", {}, {}};
      if (!options_.scalars.empty()) {
        entry.tags.push_back("value=" + value_text(value.type.dtype, options_.scalars[value.index]));
      }
    }
    add(v, 1, std::move(entry));
  }

  void add_node(const Node& node) {
    Entry entry{result_shapes(node), name_of(node), {}, {}};
    for (ValueId v : node.operands) {
      if (v != kNoValue) {
        add_input(v);
        entry.operands.push_back(v);
      }
    }
    if (!node.attrs.empty()) {
      entry.tags.push_back("arguments=(" + attrs_text(node.attrs) + ")");
    }
    std::string line = options_.location ? options_.location(node.location) : std::string();
    if (!line.empty()) {
      entry.tags.push_back("location=" + line);
    }
    add(node.first_result, node.num_results, std::move(entry));
  }

  std::string result_shapes(const Node& node) const {
    std::string shapes;
    for (int32_t i = 0; i < node.num_results; ++i) {
      shapes += (i ? ", " : "") + shape_text(graph_.type(node.result(i)));
    }
    return node.num_results > 1 ? "(" + shapes + ")" : shapes;
  }

  static std::string attrs_text(const Attrs& attrs) {
    std::string text;
    for (size_t i = 0; i < attrs.size(); ++i) {
      text += (i ? ", " : "") + attr_text(attrs[i]);
    }
    return text;
  }

  // ATen's name without the overload.
  static std::string name_of(const Node& node) {
    if (node.op->kind == OpKind::kView || node.op->kind == OpKind::kViewUpdate) {
      return node.op->kind == OpKind::kView ? "aten::as_strided" : "aten::as_strided_scatter";
    }
    std::string name = node.op->name;
    return name.find("::") == std::string::npos ? "xla::" + name : name.substr(0, name.find('.'));
  }

  const Graph& graph_;
  const ListingOptions& options_;
  std::vector<int32_t> entry_of_; // by value
  std::vector<Entry> entries_;
};

} // namespace

std::string xla_type_name(DType dtype) {
  std::string name = dtype_name(dtype);
  if (dtype == DType::Bool) {
    return "pred";
  }
  return name[0] == 'i' ? "s" + name.substr(1) : name[0] == 'u' ? "u" + name.substr(2) : name;
}

std::string shape_text(const Type& type) {
  Dims order(type.dims.size(), 0);
  std::iota(order.begin(), order.end(), 0);
  std::reverse(order.begin(), order.end());
  return xla_type_name(type.dtype) + dims_text(type.dims, '[', ']') + (order.empty() ? "" : dims_text(order, '{', '}'));
}

std::string list_graph(const Graph& graph, const ListingOptions& options) {
  Listing listing(graph, options);
  std::string text = "IR {\n";
  for (size_t e = 0; e < listing.entries().size(); ++e) {
    const Listing::Entry& entry = listing.entries()[e];
    text += str("  %", e, " = ", entry.shape, " ", entry.name, "(");
    for (size_t i = 0; i < entry.operands.size(); ++i) {
      text += str(i ? ", %" : "%", listing.entry_of(entry.operands[i]), listing.result_suffix(entry.operands[i], "."));
    }
    text += ")";
    for (const std::string& tag : entry.tags) {
      text += ", " + tag;
    }
    text += "\n";
  }
  return text + "}\n";
}

std::string list_dot(const Graph& graph, const ListingOptions& options) {
  Listing listing(graph, options);
  std::string nodes, edges;
  for (size_t e = 0; e < listing.entries().size(); ++e) {
    const Listing::Entry& entry = listing.entries()[e];
    nodes += str("  node", e, " [label=\"", entry.name);
    for (const std::string& tag : entry.tags) {
      nodes += "\\n" + escaped(tag);
    }
    nodes += "\"]\n";
    for (size_t i = 0; i < entry.operands.size(); ++i) {
      ValueId v = entry.operands[i];
      edges += str("  node", listing.entry_of(v), " -> node", e, " [label=\"i=", i, listing.result_suffix(v, ",o="), "\"]\n");
    }
  }
  return "digraph G {\n" + nodes + edges + "}\n";
}

} // namespace torch_xla
