// Looks through a program's shardings for an order of devices.
#include <numeric>

#include "ir/computation.h"
#include "ops/tables.h"
#include "stablehlo/shardy.h"
#include "stablehlo/writer.h"

namespace torch_xla {
namespace {

// The first sharding that is over no axes of the devices in the order.
std::optional<Sharding> find_other(const Graph& graph, const Dims& order) {
  for (const ShardingRef& sharding : graph.parameter_shardings) {
    if (sharding && !stablehlo::Shardy::follows(*sharding, order)) {
      return *sharding;
    }
  }
  for (const Node& node : graph.nodes) {
    std::optional<Sharding> found = find_named(node);
    if (found && !stablehlo::Shardy::follows(*found, order)) {
      return found;
    }
    const Computation* body = find_body(node);
    found = body ? find_other(body->graph, order) : std::nullopt;
    if (found) {
      return found;
    }
  }
  return std::nullopt;
}

} // namespace

Dims find_device_order(const Graph& graph, int num_partitions) {
  Dims order(static_cast<size_t>(num_partitions), 0);
  std::iota(order.begin(), order.end(), 0);
  const std::optional<Sharding> other = num_partitions > 1 ? find_other(graph, order) : std::nullopt;
  return other ? other->devices : order;
}

} // namespace torch_xla
