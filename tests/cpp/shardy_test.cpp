// Shardings: their tiles, their axes in Shardy's words, and those that a compiler tells.
#include <gtest/gtest.h>

#include "core/errors.h"
#include "engine/pjrt/output_shardings.h"
#include "ir/graph.h"
#include "ops/registry.h"
#include "stablehlo/shardy.h"
#include "stablehlo/writer.h"

namespace torch_xla {
namespace {

using stablehlo::Shardy;

TEST(Sharding, Tiles) {
  const Sharding sharding{{2, 1}, {3, 1, 0, 2}}; // rows on devices 3 and 1, and on 0 and 2
  EXPECT_EQ(sharding.text(), "{devices=[2,1,2]3,1,0,2 last_tile_dim_replicate}");
  EXPECT_EQ(sharding.tile_dims({5, 3}), (Dims{3, 3}));
  EXPECT_EQ(sharding.tile_start({5, 3}, 1), (Dims{0, 0}));
  EXPECT_EQ(sharding.tile_start({5, 3}, 2), (Dims{3, 0}));
  EXPECT_TRUE(sharding.pads({5, 3}));
  EXPECT_FALSE(sharding.pads({4, 3}));
  EXPECT_EQ(make_sharding({1, 1}, {0, 1}), nullptr);
  EXPECT_EQ(sharding_text(nullptr), "{replicated}");
  EXPECT_THROW(make_sharding({2}, {0, 0}), UserError);
  EXPECT_THROW(make_sharding({3}, {0, 1}), UserError);
}

TEST(Shardy, OneMeshForShapesThatRefineEachOther) {
  Shardy shardy({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(shardy.name_of({{8, 1}, {0, 1, 2, 3, 4, 5, 6, 7}}), "#sharding0");
  EXPECT_EQ(shardy.name_of({{2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}}), "#sharding1");
  EXPECT_EQ(shardy.name_of({{2}, {0, 2, 4, 6, 1, 3, 5, 7}}), "#sharding2");
  EXPECT_EQ(shardy.name_of({{4, 2}, {0, 4, 2, 6, 1, 5, 3, 7}}), "#sharding3");
  EXPECT_EQ(shardy.name_of({{8, 1}, {0, 1, 2, 3, 4, 5, 6, 7}}), "#sharding0");
  EXPECT_EQ(shardy.meshes(), "  sdy.mesh @mesh = <[\"axis_0\"=2, \"axis_1\"=2, \"axis_2\"=2]>\n");
  EXPECT_EQ(
      shardy.definitions(),
      "#sharding0 = #sdy.sharding<@mesh, [{\"axis_0\", \"axis_1\", \"axis_2\"}, {}]>\n"
      "#sharding1 = #sdy.sharding<@mesh, [{\"axis_0\"}, {\"axis_1\", \"axis_2\"}]>\n"
      "#sharding2 = #sdy.sharding<@mesh, [{\"axis_2\"}]>\n"
      "#sharding3 = #sdy.sharding<@mesh, [{\"axis_2\", \"axis_1\"}, {\"axis_0\"}]>\n");
}

TEST(Shardy, OtherMeshesForOtherSizes) {
  Shardy shardy({5, 4, 3, 2, 1, 0});
  shardy.name_of({{2, 3}, {5, 4, 3, 2, 1, 0}});
  shardy.name_of({{3, 2}, {5, 4, 3, 2, 1, 0}});
  EXPECT_EQ(
      shardy.meshes(),
      "  sdy.mesh @mesh = <[\"axis_0\"=2, \"axis_1\"=3]>\n"
      "  sdy.mesh @mesh_1 = <[\"axis_0\"=3, \"axis_1\"=2]>\n");
  EXPECT_THROW(shardy.name_of({{6}, {0, 1, 2, 3, 4, 5}}), UserError);
}

// The second region takes what the first one gives, and a shard leaves it.
TEST(Shardy, ManualRegions) {
  const Graph graph = parse_graph(
      "graph(%0: f32[4,8], %1: f32[2,8]) {\n"
      "  %2: f32[2,8] = xla::take_shard(%0) {[2, 1], [0, 1]}\n"
      "  %3: f32[2,8] = add(%2, %1)\n"
      "  %4: f32[4,8] = xla::join_shards(%3) {[2, 1], [0, 1]}\n"
      "  %5: f32[4,8] = add(%4, %4)\n"
      "  %6: f32[4,4] = xla::take_shard(%5) {[1, 2], [0, 1]}\n"
      "  %7: f32[4,4] = xla::all_reduce_shards(%6) {\"add\", [0, 1], 1}\n"
      "  return %7\n}\n",
      find_op);
  const std::string text = write_stablehlo(graph, {.device_order = {0, 1}});
  for (const char* part : {
           "#axes = #sdy<manual_axes{\"axis_0\"}>\n",
           "    %0 = \"sdy.manual_computation\"(%arg0, %arg1) ({\n    ^bb0(%1: tensor<2x8xf32>, %2: tensor<2x8xf32>):\n",
           "      \"sdy.return\"(%3) : (tensor<2x8xf32>) -> ()\n",
           "    }) {in_shardings = #sdy.sharding_per_value<[#sharding1, #sharding0]>, manual_axes = #axes, out_shardings = ",
           "    %4 = stablehlo.add %0, %0 : tensor<4x8xf32>\n",
           "{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>",
       }) {
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  }
}

TEST(Shardy, CollectivesBetweenDevices) {
  const Graph graph = parse_graph(
      "graph(%0: f32[4,8]) {\n"
      "  %1: f32[2,8] = xla::take_shard(%0) {[2, 1], [1, 0]}\n"
      "  %2: f32[4,8] = xla::all_gather_shards(%1) {\"\", [0, 1], 1, 0}\n"
      "  %3: f32[8,4] = xla::all_to_all_shards(%2) {\"\", [0, 1], 1, 1, 0}\n"
      "  %4: f32[8,4] = xla::permute_shards(%3) {\"\", [0, 1, 1, 0], 2}\n"
      "  return %4\n}\n",
      find_op);
  const std::string text = write_stablehlo(graph, {.device_order = {1, 0}});
  for (const char* part : {
           "{replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, "
           "all_gather_dim = 0 : i64, use_global_device_ids = unit}",
           "split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64}",
           "{source_target_pairs = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>, channel_handle",
       }) {
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  }
}

TEST(OutputShardings, OfAModule) {
  // A tuple of {devices=[2,2]<=[2,2]T(1,0)} and {replicated}: OpSharding's fields 1, 3, 9 and 10.
  const std::string tiled("\x08\x03\x1a\x02\x02\x02\x4a\x02\x02\x02\x52\x02\x01\x00", 14);
  const std::string tuple = std::string("\x08\x02\x2a\x0e") + tiled + std::string("\x2a\x00", 2);
  const std::string module = std::string("\x0a\x01m\x62\x14") + tuple;
  auto read = [&](const std::string& bytes, const std::vector<size_t>& ranks) {
    return pjrt::read_output_shardings(bytes, "hlo", ranks, {0, 1, 2, 3});
  };
  auto told = read(module, {2, 1});
  ASSERT_TRUE(told);
  EXPECT_EQ(sharding_text((*told)[0]), "{devices=[2,2]0,2,1,3}");
  EXPECT_EQ((*told)[1], nullptr);
  EXPECT_FALSE(read(module, {2}));
  EXPECT_FALSE(read(module, {3, 1}));
  EXPECT_FALSE(read("", {1}));
  EXPECT_FALSE(pjrt::read_output_shardings(module, "text", {2, 1}, {0, 1, 2, 3}));
}

} // namespace
} // namespace torch_xla
