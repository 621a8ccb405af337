// Operations on the shards of single devices. Only programs over the devices of a plugin have them.
#include "ir/shards.h"

#include "core/errors.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

void infer_take(InferContext& c) {
  const Sharding sharding{c.get_dims(kShardTiles), c.get_dims(kShardDevices)};
  const Type whole = c.operand(0);
  XLA_CHECK_KIND(Value, !sharding.pads(whole.dims), type_text(whole), " has no equal shards as ", sharding.text());
  c.add_result(whole.dtype, sharding.tile_dims(whole.dims));
}

void infer_join(InferContext& c) {
  const Type shard = c.operand(0);
  const Dims tiles = c.get_dims(kShardTiles);
  Dims dims = shard.dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    dims[i] *= tiles[i];
  }
  c.add_result(shard.dtype, std::move(dims));
}

void infer_reduce_scatter(InferContext& c) {
  Type type = c.operand(0);
  const auto of_group = static_cast<int64_t>(c.get_dims(kShardGroups).size()) / c.get_int(kShardNumGroups);
  int64_t& cut = type.dims[static_cast<size_t>(c.get_int(kShardScattered))];
  XLA_CHECK_KIND(Value, cut % of_group == 0, "a dim of ", cut, " elements is not shared out evenly by ", of_group, " devices");
  cut /= of_group;
  c.add_result(type.dtype, type.dims);
}

constinit const Op kRows[] = {
    {.name = "xla::take_shard", .kind = OpKind::kLibrary, .infer = infer_take, .dtypes = kAllTypes, .traits = kOwnKernel},
    {.name = "xla::join_shards", .kind = OpKind::kLibrary, .infer = infer_join, .dtypes = kAllTypes, .traits = kOwnKernel},
    {.name = "xla::all_reduce_shards", .kind = OpKind::kLibrary, .infer = like_operand<0>, .dtypes = kAllTypes, .traits = kOwnKernel},
    {.name = "xla::reduce_scatter_shards",
     .kind = OpKind::kLibrary,
     .infer = infer_reduce_scatter,
     .dtypes = kAllTypes,
     .traits = kOwnKernel},
};

std::optional<Sharding> sharding_of(const Node& node, void (*infer)(InferContext&)) {
  if (node.op->infer != infer) {
    return std::nullopt;
  }
  return Sharding{std::get<Dims>(node.attrs[kShardTiles]), std::get<Dims>(node.attrs[kShardDevices])};
}

} // namespace

std::span<const Op> shard_ops() {
  return kRows;
}

std::optional<Sharding> find_taken(const Node& node) {
  return sharding_of(node, &infer_take);
}

std::optional<Sharding> find_joined(const Node& node) {
  return sharding_of(node, &infer_join);
}

std::optional<Sharding> find_named(const Node& node) {
  std::optional<Sharding> found = find_constraint(node);
  found = found ? found : find_taken(node);
  return found ? found : find_joined(node);
}

} // namespace torch_xla
