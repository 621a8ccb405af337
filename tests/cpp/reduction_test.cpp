// Reductions over columns: how they are cut for threads, that all widths of columns agree with ATen, and what is fused around them.
#include "engine/cpu/schedule/reduction.h"

#include "engine_harness.h"

namespace torch_xla::testing {
namespace {

Dims find_second_level(const Dims& dims, const Dims& strides, const Dims& over) {
  return cpu::cut_reduction(dims, strides, over).last;
}

Dims find_pieces(const Dims& dims, const Dims& over) {
  return cpu::cut_reduction(dims, contiguous_strides(dims), over).pieces;
}

const Dims kRowMajor = contiguous_strides({64, 32, 32, 32});
const Dims kChannelsLast{32768, 1, 1024, 32};

TEST(Reduction, FewColumnsAreSummedImageByImage) {
  EXPECT_EQ(find_second_level({64, 32, 32, 32}, kChannelsLast, {0, 2, 3}), (Dims{0}));
  EXPECT_EQ(find_second_level({64, 32, 32, 32}, kRowMajor, {0, 2, 3}), (Dims{})) << "32 rows are units enough";
}

TEST(Reduction, ByTheNextDimWhereThereAreFewImages) {
  EXPECT_EQ(find_second_level({2, 32, 128, 128}, {524288, 1, 4096, 32}, {0, 2, 3}), (Dims{0, 2}));
  EXPECT_EQ(find_second_level({1, 32, 128, 128}, {524288, 1, 4096, 32}, {2, 3}), (Dims{2}));
}

TEST(Reduction, AtOnceWhereThatIsShortOrHasBlocksEnough) {
  EXPECT_EQ(find_second_level({4, 32, 16, 16}, {8192, 1, 512, 32}, {0, 2, 3}), (Dims{})) << "32,768 elements";
  EXPECT_EQ(find_second_level({64, 512, 16, 16}, {131072, 1, 8192, 512}, {0, 2, 3}), (Dims{})) << "eight blocks of columns";
  EXPECT_EQ(find_second_level({65536, 32}, {32, 1}, {0}), (Dims{})) << "one dim only";
  EXPECT_EQ(find_second_level({4096, 32, 4, 4}, {512, 1, 128, 32}, {0, 2, 3}), (Dims{})) << "each image would be too short";
}

TEST(Reduction, OfAllOfTheMemoryInPieces) {
  EXPECT_EQ(find_pieces({1 << 20}, {0}), (Dims{64, 1 << 14}));
  EXPECT_EQ(find_pieces({3, 1 << 20}, {0, 1}), (Dims{64, 49152}));
  EXPECT_EQ(find_pieces({1 << 16}, {0}), (Dims{})) << "short";
  EXPECT_EQ(find_pieces({99999}, {0}), (Dims{41, 2439}));
  EXPECT_EQ(find_pieces({100003}, {0}), (Dims{})) << "prime";
  EXPECT_EQ(find_pieces({0}, {0}), (Dims{}));
}

TEST(Reduction, OfOneFirstDimInPiecesOfWholeVectors) {
  EXPECT_EQ(find_pieces({1 << 20, 4}, {0}), (Dims{64, 1024, 16, 4}));
  EXPECT_EQ(find_pieces({1, 65536, 3}, {1}), (Dims{32, 64, 32, 3})) << "narrow";
  EXPECT_EQ(find_pieces({1 << 14, 5, 16}, {0}), (Dims{64, 256, 5, 16})) << "wide enough";
  EXPECT_EQ(find_pieces({1 << 14, 512}, {0}), (Dims{})) << "eight blocks of columns";
  EXPECT_EQ(find_pieces({2, 65536, 3}, {1}), (Dims{})) << "not the first dim";
}

// But for the result.
void expect_less_stored(Program& p, Ex result, int64_t bytes) {
  const std::string text = p.compile({result})->text();
  const std::string before = "arena of ";
  EXPECT_LT(std::stoll(text.substr(text.find(before) + before.size())), bytes) << text;
}

// What only sums of much read is computed where it is summed.
TEST(Reduction, ComputesWhatItSumsInPieces) {
  Program p;
  const at::Tensor a = at::randn({1 << 18}), b = at::randn({1 << 18});
  const Ex x = p.input(a), y = p.input(b);
  const Ex difference = (x - y) * 0.5;
  const std::vector<Ex> sums = {difference.reduce(Prim::kReduceSum, {0}), (difference * difference).reduce(Prim::kReduceSum, {0})};
  p.check(sums, {((a - b) * 0.5).sum(0, /*keepdim=*/true), ((a - b) * 0.5).square().sum(0, /*keepdim=*/true)}, 1e-2);
  expect_less_stored(p, sums[1], a.numel());
  const Ex stored = x * y;
  p.check({stored.reduce(Prim::kReduceSum, {0}), stored}, {(a * b).sum(0, /*keepdim=*/true), a * b}, 1e-2);
}

// Few columns, and few rows of another order.
TEST(Reduction, OfFewColumnsInPiecesAgreesWithAten) {
  for (int64_t columns : {1, 3, 10, 31, 64}) {
    Program p;
    const at::Tensor a = at::randn({1 << 17, columns});
    const at::Tensor b = at::randn({columns, 1 << 17}).t();
    const Ex x = p.input(a), y = p.input(b);
    p.check(
        {x.reduce(Prim::kReduceSum, {0}), x.reduce(Prim::kReduceMax, {0}), (x * y).reduce(Prim::kReduceSum, {0})},
        {a.sum(0, /*keepdim=*/true), a.amax(0, /*keepdim=*/true), (a * b).sum(0, /*keepdim=*/true)},
        1e-2);
  }
}

at::Tensor images(int64_t channels, at::ScalarType dtype) {
  return at::randn({16, channels, 24, 24}).to(dtype).contiguous(at::MemoryFormat::ChannelsLast);
}

TEST(EngineRows, LeadingExtentsOfOneChangeNothing) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{100}, {1, 100}, {1, 1, 100}}) {
    Program p;
    const Ex x = p.input(at::randn(sizes));
    const std::string text = p.compile({x.reduce(Prim::kReduceMax, {static_cast<int64_t>(sizes.size()) - 1})})->text();
    EXPECT_NE(text.find("row outer[] mid[] inner 100"), std::string::npos) << text;
  }
}

// Whole vectors and parts of them, several together and one by one; one sum and more than a block holds.
TEST(EngineColumns, OfAnyWidth) {
  for (int64_t channels : {3, 8, 16, 24, 32, 48, 64, 80, 128}) {
    Program p;
    const at::Tensor a = images(channels, at::kFloat);
    const Ex x = p.input(a);
    Ex powers = x;
    at::Tensor expected = a;
    std::vector<Ex> sums;
    std::vector<at::Tensor> results;
    for (int i = 0; i < 6; ++i) {
      sums.push_back(powers.reduce(Prim::kReduceSum, {0, 2, 3}));
      results.push_back(expected.sum({0, 2, 3}, /*keepdim=*/true));
      powers = powers * x * 0.5;
      expected = expected * a * 0.5;
    }
    sums.push_back(x.reduce(Prim::kReduceMax, {0, 2, 3}));
    results.push_back(a.amax({0, 2, 3}, /*keepdim=*/true));
    p.check(sums, results, 1e-3);
  }
}

// Normalization of channels-last images: after the sums the images are read once more, in one kernel, though they come in two levels.
TEST(EngineColumns, WhatFollowsTwoSumsIsOneKernel) {
  Program p;
  const at::Tensor a = images(32, at::kFloat);
  const at::Tensor b = images(32, at::kFloat);
  const Ex x = p.input(a);
  const Ex y = p.input(b);
  const Dims over{0, 2, 3};
  const double part = 1.0 / (16 * 24 * 24);
  const Ex scaled = x * ((x * y).reduce(Prim::kReduceSum, over) * part);
  const Ex result = y - y.reduce(Prim::kReduceSum, over) * part - scaled;
  const at::Tensor mean = b.mean({0, 2, 3}, /*keepdim=*/true);
  p.check({result}, {b - mean - a * (a * b).mean({0, 2, 3}, /*keepdim=*/true)}, 1e-4);
  EXPECT_EQ(count_steps(*p.compile({result})), 4U) << "sums of both, over images and over the batch, and one kernel";
  expect_less_stored(p, result, static_cast<int64_t>(a.nbytes()));
}

// x - mean: a value of one large operand is computed again for the second kernel rather than stored by the first.
TEST(EngineColumns, ValuesOfOneLargeOperandAreNotStored) {
  Program p;
  const at::Tensor a = images(32, at::kFloat);
  const Ex x = p.input(a);
  const Dims over{0, 2, 3};
  const Ex centered = x - x.reduce(Prim::kReduceSum, over) * (1.0 / (16 * 24 * 24));
  const Ex result = centered - (centered * centered * centered).reduce(Prim::kReduceSum, over);
  const at::Tensor expected = a - a.mean({0, 2, 3}, /*keepdim=*/true);
  p.check({result}, {expected - expected.pow(3).sum({0, 2, 3}, /*keepdim=*/true)}, 1e-2);
  expect_less_stored(p, result, static_cast<int64_t>(a.nbytes()));
}

} // namespace
} // namespace torch_xla::testing
