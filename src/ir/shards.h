// Operations on the shards of single devices: numbers of their attributes.
#pragma once

#include <cstddef>

namespace torch_xla {

// xla::take_shard: each device's shard of a value. xla::join_shards: the value of the devices' shards.
constexpr size_t kShardTiles = 0; // as of Sharding
constexpr size_t kShardDevices = 1;

// xla::all_reduce_shards, xla::reduce_scatter_shards, xla::all_gather_shards, xla::all_to_all_shards: over the devices of each group.
// xla::permute_shards: its groups are pairs of source and target.
constexpr size_t kShardReduction = 0; // StableHLO's operation: "add"; of the others empty
constexpr size_t kShardGroups = 1; // their devices, one group after the other
constexpr size_t kShardNumGroups = 2;
constexpr size_t kShardDim = 3; // cut by reduce_scatter and all_to_all, joined by all_gather
constexpr size_t kShardJoinedDim = 4; // of all_to_all

} // namespace torch_xla
