// Hashes a graph without sizes.
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

} // namespace

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
