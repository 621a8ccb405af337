// Patterns of offsets: when one widens, what a run is given, and programs whose views are moved by their numbers.
#include "program/offset_pattern.h"

#include "engine_harness.h"
#include "ir/view.h"
#include "program/program_cache.h"

namespace torch_xla {
namespace {

using Offsets = std::vector<int64_t>;
using Numbers = std::vector<uint64_t>;

TEST(OffsetPattern, WhatDiffersBecomesANumber) {
  OffsetPattern first({4, 0, 4, 7});
  EXPECT_TRUE(first.matches({4, 0, 4, 7}));
  EXPECT_FALSE(first.matches({4, 0, 4, 8}));
  EXPECT_EQ(first.numbers({4, 0, 4, 7}), Numbers());

  OffsetPattern wider = first.widened({6, 0, 6, 7});
  EXPECT_TRUE(wider.matches({8, 0, 8, 7}));
  EXPECT_FALSE(wider.matches({8, 0, 9, 7})) << "what was equal shares a number";
  EXPECT_FALSE(wider.matches({8, 1, 8, 7})) << "what did not differ is fixed";
  EXPECT_EQ(wider.numbers({8, 0, 8, 7}), Numbers{8});

  OffsetPattern apart = wider.widened({8, 0, 9, 7});
  EXPECT_TRUE(apart.matches({1, 0, 2, 7}));
  EXPECT_TRUE(apart.matches({1, 0, 1, 7}));
  EXPECT_EQ(apart.numbers({1, 0, 2, 7}), (Numbers{1, 2}));
}

TEST(OffsetPattern, EqualByChanceStaysApart) {
  OffsetPattern pattern = OffsetPattern({3, 5}).widened({4, 4});
  EXPECT_TRUE(pattern.matches({5, 3}));
  EXPECT_EQ(pattern.numbers({5, 3}), (Numbers{5, 3}));
}

TEST(OffsetPattern, TheCacheHasAnEntryForAllThatDiffer) {
  ProgramCache cache(4);
  const Hash128 key;
  ProgramEntry& first = cache.entry(key, {0, 1});
  EXPECT_EQ(&cache.entry(key, {0, 1}), &first);
  ProgramEntry& second = cache.entry(key, {0, 2});
  EXPECT_NE(&second, &first);
  EXPECT_EQ(&cache.entry(key, {0, 30}), &second);
  EXPECT_EQ(&cache.entry(key, {0, 1}), &first) << "which was there before";
  EXPECT_NE(&cache.entry(key, {5, 30}), &second);
  EXPECT_EQ(cache.size(), 1u);
}

// A row of x goes doubled to another one, and is multiplied by a matrix: by a kernel, an update and a library call.
class MovingViews : public ::testing::Test {
 protected:
  MovingViews() {
    ValueId x = graph_.add_parameter({DType::F32, {9, 4}});
    ValueId weight = graph_.add_parameter({DType::F32, {4, 4}});
    ValueId row = builder_.view(x, {4, 1}, {1, 4}, {4, 1}, 8);
    Ex doubled = Ex{&builder_, row} * 2.0;
    ValueId updated = builder_.view_update(x, doubled.id(), {4, 1}, {4, 1}, 12);
    const Type type{DType::F32, {1, 4}};
    const ValueId operands[] = {builder_.view(updated, {4, 1}, {1, 4}, {4, 1}, 8), weight};
    graph_.outputs = {updated, builder_.library(*find_op("aten::mm"), operands, {}, std::span(&type, 1))};
    pattern_.apply(graph_);
  }

  std::vector<at::Tensor> run(Executable& executable, const at::Tensor& x, const at::Tensor& weight, const Offsets& offsets) {
    RunArgs args;
    args.inputs = {testing::upload(x), testing::upload(weight)};
    args.donated = {true, false};
    args.scalars = pattern_.numbers(offsets);
    executable.run(args);
    return {testing::download(args.outputs[0]), testing::download(args.outputs[1])};
  }

  Graph graph_;
  Builder builder_{graph_};
  OffsetPattern pattern_ = OffsetPattern({8, 12, 8}).widened({12, 16, 12});
};

TEST_F(MovingViews, OneProgramServesAll) {
  verify_graph(graph_);
  at::Tensor x = at::randn({9, 4}), weight = at::randn({4, 4});
  std::string stored;
  CompileOptions options;
  options.stored = &stored;
  for (auto& program : {cpu_engine().compile(graph_, options), cpu_engine().restore(stored, {})}) {
    for (int64_t from = 0; from < 9; ++from) {
      for (int64_t to = 0; to < 9; ++to) {
        at::Tensor expected = x.clone();
        expected[to] = expected[from] * 2;
        std::vector<at::Tensor> got = run(*program, x, weight, {from * 4, to * 4, from * 4});
        EXPECT_TRUE(at::equal(got[0], expected)) << from << " to " << to;
        EXPECT_TRUE(at::allclose(got[1], expected.slice(0, from, from + 1).mm(weight), 1e-5, 1e-6)) << from << " to " << to;
      }
    }
  }
}

TEST_F(MovingViews, TheNumberIsAnIntegerOfTheProgram) {
  graph_.nodes[0].operands[1] = graph_.parameters[0];
  EXPECT_THROW(verify_graph(graph_), InternalError);
}

TEST(MovingGeometry, ComposesWhereOneOfTwoMoves) {
  ViewGeometry still{{6, 4}, {4, 1}, {4, 6}, {1, 4}, 0};
  ViewGeometry moving{{6, 4}, {4, 1}, {4}, {1}, 0, 7};
  EXPECT_FALSE(is_identity({{4}, {1}, {4}, {1}, 0, 7}));
  std::optional<ViewGeometry> both = compose_views(moving, {{4}, {1}, {2}, {1}, 1});
  ASSERT_TRUE(both);
  EXPECT_EQ(both->moved_by, 7);
  EXPECT_EQ(both->offset, 1);
  both = compose_views({{24}, {1}, {6, 4}, {4, 1}, 0}, moving);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->moved_by, 7);
  EXPECT_FALSE(compose_views(still, {{4, 6}, {6, 1}, {6}, {1}, 0, 7})) << "steps of other memory";
  EXPECT_FALSE(compose_views(moving, {{4}, {1}, {1}, {1}, 0, 8})) << "two numbers";
}

} // namespace
} // namespace torch_xla
