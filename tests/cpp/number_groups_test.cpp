// Groups of numbers: which hold for a run, what a program is given, and the graph that takes one number of each.
#include "program/number_groups.h"

#include <gtest/gtest.h>

#include "ops/registry.h"

namespace torch_xla {
namespace {

using Numbers = std::vector<uint64_t>;

Graph graph_of_numbers(std::initializer_list<DType> dtypes) {
  Graph graph;
  for (DType dtype : dtypes) {
    graph.add_scalar(dtype);
  }
  return graph;
}

TEST(NumberGroups, EachByItselfUnlessTold) {
  NumberGroups groups;
  EXPECT_TRUE(groups.hold({1, 2, 3}));
  EXPECT_EQ(groups.take({1, 1, 3}), (Numbers{1, 1, 3}));
  Graph graph = graph_of_numbers({DType::F64, DType::F64});
  EXPECT_EQ(groups.refined(graph, {5, 5}).take({5, 5}), (Numbers{5, 5})) << "what may differ does not become one";
}

TEST(NumberGroups, EqualNumbersOfOneTypeAreOne) {
  Graph graph = graph_of_numbers({DType::F64, DType::F64, DType::I64, DType::F64});
  NumberGroups groups = NumberGroups::of_equal(graph, {7, 4, 7, 7});
  EXPECT_EQ(groups.take({7, 4, 7, 7}), (Numbers{7, 4, 7}));
  EXPECT_TRUE(groups.hold({1, 2, 3, 1}));
  EXPECT_TRUE(groups.hold({1, 1, 1, 1}));
  EXPECT_FALSE(groups.hold({1, 2, 3, 4}));
}

TEST(NumberGroups, WhatDiffersOnceStaysApart) {
  Graph graph = graph_of_numbers({DType::F64, DType::F64, DType::F64});
  NumberGroups groups = NumberGroups::of_equal(graph, {1, 1, 1}).refined(graph, {2, 3, 3});
  EXPECT_EQ(groups.take({2, 3, 3}), (Numbers{2, 3}));
  NumberGroups finer = groups.refined(graph, {4, 4, 5});
  EXPECT_EQ(finer.take({4, 4, 5}), (Numbers{4, 4, 5})) << "the first two were apart before";
  EXPECT_TRUE(finer.hold({1, 2, 3}));
}

TEST(NumberGroups, AGraphTakesOneOfEach) {
  Graph graph = parse_graph(
      R"(graph(%0: f32[4], %1: f64 scalar, %2: f64 scalar, %3: f64 scalar) {
    %4: f32[4] = aten::add.Tensor(%0, %1, %2)
    %5: f32[4] = aten::add.Tensor(%4, %2, %3)
    return %5
  })",
      find_op);
  NumberGroups groups = NumberGroups::of_equal(graph, {1, 2, 1});
  groups.apply(graph);
  verify_graph(graph);
  EXPECT_EQ(graph.scalars, (std::vector<ValueId>{1, 2}));
  EXPECT_EQ(graph.nodes[1].operands[2], 1);
}

} // namespace
} // namespace torch_xla
