// Manual regions: the parts of a graph in which each device computes on its own shards.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace torch_xla::stablehlo {

// Nodes that are written one after the other.
struct Part {
  // A value of a region and what it is outside of it: its devices' shards, in this sharding. A shard that leaves the region is a value that
  // is whole on each device, and another one on each.
  struct Port {
    ValueId outside;
    ValueId inside;
    Sharding sharding;
  };

  std::vector<const Node*> nodes;
  bool is_manual = false;
  std::vector<Port> inputs; // of a region
  std::vector<Port> outputs;
};

// All nodes in parts, each after those that it needs. Whole values become shards, and shards whole values, at the edges of regions.
std::vector<Part> split_by_regions(const Graph& graph, int64_t num_devices);

} // namespace torch_xla::stablehlo
