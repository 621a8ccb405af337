// Follows shards through a trace.
#include "trace/shards.h"

#include <algorithm>

#include "ops/tables.h"

namespace torch_xla {

std::vector<bool> find_shards(Trace& trace) {
  const Graph& graph = trace.graph();
  std::vector<bool> shards(graph.values.size(), false);
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    shards[static_cast<size_t>(graph.parameters[i])] = trace.inputs()[i] && trace.inputs()[i]->is_shard;
  }
  for (const Node& node : graph.nodes) {
    auto is_read = [&](ValueId v) { return v != kNoValue && shards[static_cast<size_t>(v)]; };
    const bool is_of_shard = is_of_shards(*node.op) || std::any_of(node.operands.begin(), node.operands.end(), is_read);
    for (int32_t r = 0; is_of_shard && r < node.num_results; ++r) {
      shards[static_cast<size_t>(node.result(r))] = !find_joined(node);
    }
  }
  return shards;
}

} // namespace torch_xla
