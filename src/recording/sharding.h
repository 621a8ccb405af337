// Shardings of tensors' contents.
#pragma once

#include <optional>
#include <string>

#include "trace/cell.h"

namespace torch_xla {

// Cuts the cell's value, which only the host has, over the devices if the cell has a mark for it. The caller holds the recording lock.
void place_as_marked(Cell& cell);
// How the content of the tensor is cut: as marked, as recorded, or as the compiler chose. Nothing where that is not settled: the content is
// pending, only the host has it, or the tensor shows it in other dims. Takes the recording lock.
std::optional<Sharding> find_sharding(const at::Tensor& tensor);
// Each device's shard of the tensor, as a tensor of its dims: what is computed from it is another value on each device, up to
// join_shards(). Only for programs over several devices.
at::Tensor take_shard(const at::Tensor& tensor, const Sharding& sharding);
// The whole tensor of the devices' shards.
at::Tensor join_shards(const at::Tensor& shard, const Sharding& sharding);
// Between the devices of each group: the row of this name with the attributes of ir/shards.h.
at::Tensor exchange_shards(const at::Tensor& shard, const std::string& name, Attrs attrs);
// Whether the tensor's value is another one on each device: computed from a shard. Takes the recording lock.
bool is_shard(const at::Tensor& tensor);
// Forgets the tensor's mark; its content stays where it is. Takes the recording lock.
void clear_mark(const at::Tensor& tensor);

} // namespace torch_xla
