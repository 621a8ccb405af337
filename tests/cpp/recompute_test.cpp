// What kernels compute again, by the steps that are left.
#include <gtest/gtest.h>

#include "engine/cpu/schedule/pipeline.h"
#include "ir/builder.h"

namespace torch_xla::cpu {
namespace {

// Steps of a program that divides images, which lie so, by the root of a number for each channel.
size_t count_steps(const Dims& dims, const Dims& strides) {
  Graph graph;
  Builder builder(graph);
  const Ex images(&builder, graph.add_parameter({DType::F32, dims}, strides));
  const Ex channels(&builder, graph.add_parameter({DType::F32, {1, dims[1], 1, 1}}));
  graph.outputs = {(images / (channels + 1e-5).unary(Prim::kSqrt)).id()};
  graph.output_strides = {strides};
  return make_schedule(graph, 0, /*fusion=*/true).steps.size();
}

TEST(Recompute, OfWhatIsSmallOutsideTheInnerLoop) {
  EXPECT_EQ(count_steps({16, 64, 32, 32}, {}), 1);
}

// Channels-last: each vector has several channels, each element would take a root.
TEST(Recompute, NotForEachElementOfLargeImages) {
  EXPECT_EQ(count_steps({16, 64, 32, 32}, {65536, 1, 2048, 64}), 2);
  EXPECT_EQ(count_steps({1, 64, 4, 4}, {1024, 1, 256, 64}), 1);
}

} // namespace
} // namespace torch_xla::cpu
