// Which programs' convolutions read channels-last images.
#include <gtest/gtest.h>

#include "engine/cpu/schedule/image_order.h"
#include "engine/cpu/schedule/layout.h"
#include "ir/builder.h"
#include "ops/registry.h"

namespace torch_xla::cpu {
namespace {

const Type kImages{DType::F32, {2, 8, 6, 6}};
const Dims kChannelsLast{288, 1, 48, 8};

// Two convolutions, one after the other.
class ImageOrder : public ::testing::Test {
 protected:
  ImageOrder() : x_(graph_.add_parameter(kImages)), weight_(graph_.add_parameter({DType::F32, {8, 8, 3, 3}})) {
    y_ = convolve(convolve(x_));
  }

  ValueId convolve(ValueId x) {
    const std::vector<int64_t> one{1, 1}, zero{0, 0};
    const ValueId operands[] = {x, weight_, kNoValue};
    return builder_.library(*find_op("aten::convolution"), operands, {one, one, one, false, zero, int64_t{1}}, std::span(&kImages, 1));
  }
  // The order of the last convolution's operand.
  Dims order_read() {
    graph_.outputs = {y_};
    const LaidOutGraph laid_out = lay_out(graph_);
    const Node* last = nullptr;
    for (const Node& node : laid_out.graph.nodes) {
      last = is_image_convolution(laid_out.graph, node) ? &node : last;
    }
    return laid_out.places[last->operands[0]].strides;
  }

  Graph graph_;
  Builder builder_{graph_};
  ValueId x_;
  ValueId weight_;
  ValueId y_;
};

TEST_F(ImageOrder, ChannelsLast) {
  EXPECT_TRUE(prefers_channels_last(graph_));
  EXPECT_EQ(order_read(), kChannelsLast);
}

TEST_F(ImageOrder, RowMajorForGroupsOfChannels) {
  for (int i = 0; i < 2; ++i) {
    ValueId groups = builder_.reshape(y_, {2, 2, 144});
    y_ = convolve(builder_.reshape(Ex(&builder_, groups).unary(Prim::kTanh).id(), kImages.dims));
    y_ = builder_.reshape(builder_.reshape(y_, {2, 2, 144}), kImages.dims);
  }
  EXPECT_FALSE(prefers_channels_last(graph_));
}

TEST_F(ImageOrder, RowMajorWhereGradientsAre) {
  const std::vector<int64_t> one{1, 1}, zero{0, 0};
  const ValueId operands[] = {y_, x_, weight_};
  const Type types[] = {kImages, {DType::F32, {8, 8, 3, 3}}, {DType::Undefined, {}}};
  const std::vector<bool> mask{true, true, false};
  builder_.library(
      *find_op("aten::convolution_backward"), operands, {std::vector<int64_t>{8}, one, one, one, false, zero, int64_t{1}, mask}, types);
  EXPECT_FALSE(prefers_channels_last(graph_));
}

TEST_F(ImageOrder, ViewsThatBothOrdersAllowCostNothing) {
  for (int i = 0; i < 4; ++i) {
    y_ = builder_.reshape(builder_.reshape(y_, {2, 8, 36}), kImages.dims);
  }
  EXPECT_TRUE(prefers_channels_last(graph_));
}

} // namespace
} // namespace torch_xla::cpu
