// Hashes of graphs, with and without sizes.
#include "ir/structure.h"

#include "ir/computation.h"

namespace torch_xla {
namespace {

template <typename T>
uint64_t length_of(const T& value) {
  if constexpr (requires { value.size(); }) {
    return value.size();
  } else {
    return 0;
  }
}

void add_attr(Hash128& hash, const Attr& attr) {
  hash.add(attr.index());
  if (auto text = std::get_if<std::string>(&attr)) {
    hash.add_bytes(text->data(), text->size());
  } else if (auto flag = std::get_if<bool>(&attr)) {
    hash.add(static_cast<uint64_t>(*flag));
  } else if (auto body = std::get_if<ComputationRef>(&attr)) {
    hash.add((*body)->hash);
  } else {
    hash.add(std::visit([](const auto& value) { return length_of(value); }, attr));
  }
}

void add_type(Hash128& hash, const Type& type) {
  hash.add(static_cast<uint64_t>(type.dtype));
  hash.add_bytes(type.dims.data(), type.dims.size() * sizeof(int64_t));
}

void add_values(Hash128& hash, std::span<const ValueId> values) {
  hash.add_bytes(values.data(), values.size_bytes());
}

} // namespace

Hash128 hash_graph(const Graph& graph) {
  Hash128 hash;
  add_values(hash, graph.parameters);
  add_values(hash, graph.scalars);
  for (const std::optional<uint64_t>& fixed : graph.fixed_scalars) {
    hash.add(uint64_t{fixed.has_value()});
    hash.add(fixed.value_or(0));
  }
  for (const Value& value : graph.values) {
    add_type(hash, value.type);
  }
  for (const Node& node : graph.nodes) {
    // No address: programs on disk are found by it. Rows of one name differ by their kind (library_form()).
    std::string_view name = node.op->name;
    hash.add_bytes(name.data(), name.size());
    hash.add(static_cast<uint64_t>(node.op->kind));
    add_values(hash, {node.operands.data(), node.operands.size()});
    hash.add(static_cast<uint64_t>(node.num_results));
    for (const Attr& attr : node.attrs) {
      hash_attr(attr, hash);
    }
  }
  add_values(hash, graph.outputs);
  return hash;
}

Hash128 structure_of(const Graph& graph) {
  Hash128 hash;
  for (const Value& value : graph.values) {
    hash.add(static_cast<uint64_t>(value.kind) << 32 | static_cast<uint64_t>(value.type.dtype) << 16 | value.type.dims.size());
  }
  for (const Node& node : graph.nodes) {
    const std::string_view name = node.op->name;
    hash.add_bytes(name.data(), name.size());
    for (ValueId v : node.operands) {
      hash.add(static_cast<uint64_t>(v));
    }
    for (const Attr& attr : node.attrs) {
      add_attr(hash, attr);
    }
  }
  for (ValueId v : graph.outputs) {
    hash.add(static_cast<uint64_t>(v));
  }
  return hash;
}

} // namespace torch_xla
