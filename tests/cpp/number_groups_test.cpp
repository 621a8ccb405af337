// Constants and groups of numbers: which hold for a run, what a program is given, and the graph that takes one number of each group.
#include "program/number_groups.h"

#include <gtest/gtest.h>

#include <bit>

#include "ops/registry.h"
#include "passes/passes.h"
#include "stablehlo/writer.h"

namespace torch_xla {
namespace {

using Numbers = std::vector<uint64_t>;

Numbers taken(const NumberGroups& groups, const Numbers& numbers) {
  Numbers taken;
  groups.take(numbers, taken);
  return taken;
}

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
  EXPECT_EQ(taken(groups, {1, 1, 3}), (Numbers{1, 1, 3}));
  Graph graph = graph_of_numbers({DType::F64, DType::F64});
  EXPECT_EQ(taken(groups.refined(graph, {5, 5}), {5, 5}), (Numbers{5, 5})) << "what may differ does not become one";
}

const std::vector<bool> kAll(4, true);

TEST(NumberGroups, EqualNumbersOfOneTypeAreOne) {
  Graph graph = graph_of_numbers({DType::F64, DType::F64, DType::I64, DType::F64});
  NumberGroups groups = NumberGroups::of_first_run(graph, {7, 4, 7, 7}, kAll);
  EXPECT_EQ(taken(groups, {7, 4, 7, 7}), (Numbers{7, 4, 7}));
  EXPECT_TRUE(groups.hold({1, 2, 3, 1}));
  EXPECT_TRUE(groups.hold({1, 1, 1, 1}));
  EXPECT_FALSE(groups.hold({1, 2, 3, 4}));
}

TEST(NumberGroups, WhatDiffersOnceStaysApart) {
  Graph graph = graph_of_numbers({DType::F64, DType::F64, DType::F64});
  NumberGroups groups = NumberGroups::of_first_run(graph, {1, 1, 1}, kAll).refined(graph, {2, 3, 3});
  EXPECT_EQ(taken(groups, {2, 3, 3}), (Numbers{2, 3}));
  NumberGroups finer = groups.refined(graph, {4, 4, 5});
  EXPECT_EQ(taken(finer, {4, 4, 5}), (Numbers{4, 4, 5})) << "the first two were apart before";
  EXPECT_TRUE(finer.hold({1, 2, 3}));
}

TEST(NumberGroups, AConstantThatChangesIsANumber) {
  Graph graph = graph_of_numbers({DType::F64, DType::F64, DType::F64, DType::F64});
  NumberGroups groups = NumberGroups::of_first_run(graph, {1, 1, 2, 3}, {false, false, false, true});
  EXPECT_EQ(taken(groups, {1, 1, 2, 3}), (Numbers{3}));
  EXPECT_TRUE(groups.hold({1, 1, 2, 9}));
  EXPECT_EQ(groups.find_misfit({5, 5, 2, 9}), 0);
  EXPECT_EQ(groups.wanted(0, {5, 5, 2, 9}), 1);
  NumberGroups finer = groups.refined(graph, {5, 5, 2, 9});
  EXPECT_EQ(taken(finer, {5, 5, 2, 9}), (Numbers{5, 9})) << "the first two were equal so far";
  EXPECT_TRUE(finer.hold({1, 1, 2, 3})) << "the old values too";
  EXPECT_FALSE(finer.hold({1, 1, 3, 3}));
  EXPECT_EQ(finer, finer.refined(graph, {6, 6, 2, 1}));
}

TEST(NumberGroups, AGraphTakesOneOfEach) {
  Graph graph = parse_graph(
      R"(graph(%0: f32[4], %1: f64 scalar, %2: f64 scalar, %3: f64 scalar) {
    %4: f32[4] = aten::add.Tensor(%0, %1, %2)
    %5: f32[4] = aten::add.Tensor(%4, %2, %3)
    return %5
  })",
      find_op);
  NumberGroups groups = NumberGroups::of_first_run(graph, {1, 2, 1}, kAll);
  groups.apply(graph);
  verify_graph(graph);
  EXPECT_EQ(graph.scalars, (std::vector<ValueId>{1, 2}));
  EXPECT_EQ(graph.nodes[1].operands[2], 1);
}

TEST(NumberGroups, ConstantsHaveTheTypeInWhichARowComputes) {
  Graph graph = parse_graph(
      R"(graph(%0: f32[4], %1: f64 scalar, %2: f64 scalar) {
    %3: f32[4] = aten::mul.Tensor(%0, %1)
    %4: f32[4] = aten::mul.Tensor(%3, %2)
    return %4
  })",
      find_op);
  const Numbers numbers{std::bit_cast<uint64_t>(0.1), std::bit_cast<uint64_t>(0.5)};
  NumberGroups::of_first_run(graph, numbers, {false, true}).apply(graph);
  verify_graph(graph);
  const std::string text = print_graph(graph);
  EXPECT_NE(text.find("%1: f64 scalar = 0x1.999999999999ap-4"), text.npos) << text;
  EXPECT_EQ(print_graph(parse_graph(text, find_op)), text);
  const Graph lowered = run_passes(graph, /*device=*/0);
  EXPECT_EQ(lowered.scalars.size(), 1);
  const std::string program = write_stablehlo(lowered);
  EXPECT_NE(program.find("dense<0x3DCCCCCD> : tensor<f32>"), program.npos) << program;
}

TEST(NumberGroups, AConstantPromotesAsANumberDoes) {
  Graph graph = parse_graph(
      R"(graph(%0: f32[], %1: f64 scalar) {
    %2: pred[] = aten::gt.Tensor(%0, %1)
    return %2
  })",
      find_op);
  NumberGroups::of_first_run(graph, {std::bit_cast<uint64_t>(0.1)}, {false}).apply(graph);
  const std::string program = write_stablehlo(run_passes(graph, /*device=*/0));
  EXPECT_EQ(program.find("f64"), program.npos) << "compared in float32: " << program;
}

} // namespace
} // namespace torch_xla
