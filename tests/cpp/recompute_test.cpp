// What kernels compute again, by the steps that are left.
#include <gtest/gtest.h>

#include "engine/cpu/schedule/pipeline.h"
#include "engine/cpu/schedule/recompute.h"
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

// Two updates whose momenta start at zero, as an optimizer's first: what both take from zeros is no reason to compute them together.
TEST(Recompute, OfTheSameNumberForAllElements) {
  const Type type{DType::F32, {1 << 16}};
  Graph graph;
  Builder builder(graph);
  const Ex faded = Ex(&builder, builder.broadcast(builder.constant(0, DType::F32), type.dims)) * 0.9;
  std::vector<Ex> momenta;
  for (int i = 0; i < 2; ++i) {
    momenta.push_back(faded + Ex(&builder, graph.add_parameter(type)) * 0.1);
    graph.outputs.push_back(momenta.back().id());
  }
  for (Ex momentum : momenta) {
    graph.outputs.push_back((Ex(&builder, graph.add_parameter(type)) - momentum).id());
  }
  EXPECT_EQ(make_schedule(graph, 0, /*fusion=*/true).steps.size(), 2);
}

// Each of the kernels that a chain is cut into would compute it from its beginning.
TEST(Recompute, NotOfLongChainsOfTheSameNumber) {
  Graph graph;
  Builder builder(graph);
  Ex number(&builder, builder.broadcast(builder.constant(0, DType::F32), {1 << 20}));
  const ValueId first = (number * 0.9).id();
  for (int i = 0; i < 100; ++i) {
    number = (number + 0.5).unary(Prim::kTanh);
  }
  const Recompute recompute(graph);
  EXPECT_TRUE(recompute.is_free(first));
  EXPECT_FALSE(recompute.is_free(number.id()));
}

} // namespace
} // namespace torch_xla::cpu
