// Common subexpressions: a node equal to an earlier one gives way to it.
#include <unordered_map>

#include "passes/passes.h"

namespace torch_xla {
namespace {

void hash_type(const Type& type, Hash128& hash) {
  hash.add(static_cast<uint64_t>(type.dtype));
  hash.add_bytes(type.dims.data(), type.dims.size() * sizeof(int64_t));
}

// Equal keys mean equal results: rows are pure functions; random rows have their seed and offset as operands.
Hash128 node_key(const Graph& graph, const Node& node) {
  Hash128 hash;
  hash.add(reinterpret_cast<uintptr_t>(node.op));
  hash.add_bytes(node.operands.data(), node.operands.size() * sizeof(ValueId));
  hash.add(node.attrs.size());
  for (const Attr& attr : node.attrs) {
    hash_attr(attr, hash);
  }
  for (int32_t i = 0; i < node.num_results; ++i) {
    hash_type(graph.type(node.result(i)), hash);
  }
  return hash;
}

} // namespace

void cse(Graph& graph) {
  std::vector<ValueId> same(graph.values.size());
  for (size_t v = 0; v < same.size(); ++v) {
    same[v] = static_cast<ValueId>(v);
  }
  std::unordered_map<Hash128, ValueId> first_results;
  first_results.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    for (ValueId& v : node.operands) {
      v = v == kNoValue ? kNoValue : same[v];
    }
    if ((node.op->traits & kCollective) || node.op->written == Written::kNone) {
      continue;
    }
    ValueId first = first_results.emplace(node_key(graph, node), node.first_result).first->second;
    for (int32_t i = 0; i < node.num_results; ++i) {
      same[node.result(i)] = first + i;
    }
  }
  for (ValueId& v : graph.outputs) {
    v = same[v];
  }
}

} // namespace torch_xla
