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

int64_t group_size(InferContext& c) {
  return static_cast<int64_t>(c.get_dims(kShardGroups).size()) / c.get_int(kShardNumGroups);
}

Dims cut_dims(InferContext& c) {
  Dims dims = c.operand(0).dims;
  int64_t& cut = dims[static_cast<size_t>(c.get_int(kShardDim))];
  XLA_CHECK_KIND(Value, cut % group_size(c) == 0, "a dim of ", cut, " elements is not shared out evenly by ", group_size(c), " devices");
  cut /= group_size(c);
  return dims;
}

void infer_reduce_scatter(InferContext& c) {
  c.add_result(c.operand(0).dtype, cut_dims(c));
}

void infer_all_gather(InferContext& c) {
  Type type = c.operand(0);
  type.dims[static_cast<size_t>(c.get_int(kShardDim))] *= group_size(c);
  c.add_result(type.dtype, type.dims);
}

void infer_all_to_all(InferContext& c) {
  Dims dims = cut_dims(c);
  dims[static_cast<size_t>(c.get_int(kShardJoinedDim))] *= group_size(c);
  c.add_result(c.operand(0).dtype, std::move(dims));
}

#define SHARDS(op_name, rule) {.name = op_name, .kind = OpKind::kLibrary, .infer = rule, .dtypes = kAllTypes, .traits = kOwnKernel}

constinit const Op kRows[] = {
    SHARDS("xla::take_shard", infer_take),
    SHARDS("xla::join_shards", infer_join),
    SHARDS("xla::all_reduce_shards", like_operand<0>),
    SHARDS("xla::reduce_scatter_shards", infer_reduce_scatter),
    SHARDS("xla::all_gather_shards", infer_all_gather),
    SHARDS("xla::all_to_all_shards", infer_all_to_all),
    SHARDS("xla::permute_shards", like_operand<0>),
};
#undef SHARDS

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

bool is_of_shards(const Op& op) {
  return &op >= std::begin(kRows) && &op < std::end(kRows);
}

std::optional<Sharding> find_named(const Node& node) {
  std::optional<Sharding> found = find_constraint(node);
  found = found ? found : find_taken(node);
  return found ? found : find_joined(node);
}

} // namespace torch_xla
