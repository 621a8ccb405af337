// Operations on the shards of single devices: numbers of their attributes.
#pragma once

#include <cstddef>

namespace torch_xla {

// xla::take_shard: each device's shard of a value. xla::join_shards: the value of the devices' shards.
constexpr size_t kShardTiles = 0; // as of Sharding
constexpr size_t kShardDevices = 1;

// xla::all_reduce_shards, xla::reduce_scatter_shards: over the devices of each group.
constexpr size_t kShardReduction = 0; // StableHLO's operation: "add"
constexpr size_t kShardGroups = 1; // their devices, one group after the other
constexpr size_t kShardNumGroups = 2;
constexpr size_t kShardScattered = 3; // the dim that is cut, of reduce_scatter

} // namespace torch_xla
