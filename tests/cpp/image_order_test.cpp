// Which programs' convolutions, and gradients of these, read channels-last images.
#include <gtest/gtest.h>

#include <set>

#include "engine/cpu/schedule/image_order.h"
#include "engine/cpu/schedule/layout.h"
#include "ir/builder.h"
#include "ops/registry.h"

namespace torch_xla::cpu {
namespace {

const Type kImages{DType::F32, {2, 8, 6, 6}};
const Dims kRowMajor{288, 36, 6, 1};
const Dims kChannelsLast{288, 1, 48, 8};

// Two convolutions between pointwise operations, and with them their gradients.
class ImageOrderTest : public ::testing::Test {
 protected:
  explicit ImageOrderTest(Dims weight = {8, 8, 3, 3}) : weight_type_{DType::F32, std::move(weight)} {
    x_ = tanh(graph_.add_parameter(kImages));
    weight_ = graph_.add_parameter(weight_type_);
    first_ = tanh(convolve(x_));
    y_ = convolve(first_);
  }

  ValueId tanh(ValueId v) {
    return Ex(&builder_, v).unary(Prim::kTanh).id();
  }
  ValueId convolve(ValueId x) {
    const ValueId operands[] = {x, weight_, kNoValue};
    return builder_.library(*find_op("aten::convolution"), operands, {kOne, kOne, kOne, false, kZero, int64_t{1}}, std::span(&kImages, 1));
  }
  // Of the input. Of the weight it is an output of the program.
  ValueId add_gradient(ValueId of_result, ValueId input) {
    const ValueId operands[] = {of_result, input, weight_};
    const Type types[] = {kImages, weight_type_, {DType::Undefined, {}}};
    ValueId first = builder_.library(
        *find_op("aten::convolution_backward"),
        operands,
        {std::vector<int64_t>{8}, kOne, kOne, kOne, false, kZero, int64_t{1}, std::vector<bool>{true, true, false}},
        types);
    graph_.outputs.push_back(first + 1);
    return first;
  }
  // A step of training: loss and gradients.
  void train() {
    ValueId gradient = tanh(y_);
    gradient = add_gradient(gradient, first_);
    add_gradient(tanh(gradient), x_);
    read_result();
  }
  // By an operation that the order does not matter to.
  void read_result() {
    graph_.outputs.push_back(Ex(&builder_, tanh(y_)).reduce(Prim::kReduceSum, {0, 1, 2, 3}).id());
  }
  // The orders in which images are read.
  std::set<std::vector<int64_t>> orders_read() {
    const LaidOutGraph laid_out = lay_out(graph_);
    std::set<std::vector<int64_t>> orders;
    for (const Node& node : laid_out.graph.nodes) {
      auto convolution = ImageConvolution::find(laid_out.graph, node);
      for (size_t i = 0; convolution && i < convolution->weight; ++i) {
        orders.insert(laid_out.places[node.operands[i]].strides.vec());
      }
    }
    return orders;
  }
  void expect_read(const Dims& strides) {
    EXPECT_EQ(orders_read(), std::set<std::vector<int64_t>>{strides.vec()});
  }

  static inline const std::vector<int64_t> kOne{1, 1}, kZero{0, 0};
  Graph graph_;
  Builder builder_{graph_};
  Type weight_type_;
  ValueId x_ = kNoValue;
  ValueId weight_ = kNoValue;
  ValueId first_ = kNoValue;
  ValueId y_ = kNoValue;
};

TEST_F(ImageOrderTest, ChannelsLast) {
  read_result();
  expect_read(kChannelsLast);
}

TEST_F(ImageOrderTest, ChannelsLastInTrainingToo) {
  train();
  expect_read(kChannelsLast);
}

TEST_F(ImageOrderTest, RowMajorForGroupsOfChannels) {
  for (int i = 0; i < 2; ++i) {
    ValueId groups = builder_.reshape(y_, {2, 2, 144});
    y_ = convolve(builder_.reshape(tanh(groups), kImages.dims));
    y_ = builder_.reshape(builder_.reshape(y_, {2, 2, 144}), kImages.dims);
  }
  read_result();
  expect_read(kRowMajor);
}

TEST_F(ImageOrderTest, ViewsThatBothOrdersAllowCostNothing) {
  for (int i = 0; i < 4; ++i) {
    y_ = builder_.reshape(builder_.reshape(y_, {2, 8, 36}), kImages.dims);
  }
  read_result();
  expect_read(kChannelsLast);
}

// As where the loss is read before the gradients are asked for.
TEST_F(ImageOrderTest, RowMajorWhereOtherProgramsTakeTheImages) {
  graph_.outputs = {x_, first_, y_};
  read_result();
  expect_read(kRowMajor);
}

TEST_F(ImageOrderTest, RowMajorWhereOtherProgramsGiveTheImages) {
  graph_.outputs.clear();
  ValueId images[] = {graph_.add_parameter(kImages), graph_.add_parameter(kImages), graph_.add_parameter(kImages)};
  for (ValueId image : images) {
    add_gradient(image, images[0]);
  }
  expect_read(kRowMajor);
}

class OfLargeWeights : public ImageOrderTest {
 protected:
  OfLargeWeights() : ImageOrderTest({8, 8, 15, 15}) {}
};

// ATen copies weights that are not in the images' order, and their gradients have to be copied back.
TEST_F(OfLargeWeights, RowMajorInTraining) {
  train();
  expect_read(kRowMajor);
}

// Where they are packed once.
TEST_F(OfLargeWeights, ChannelsLastInInference) {
  read_result();
  expect_read(kChannelsLast);
}

} // namespace
} // namespace torch_xla::cpu
