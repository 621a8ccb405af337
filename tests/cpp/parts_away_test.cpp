// Weights that are left in packed form only: every reader gets the same bits, beside other readers, too.
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "engine/cpu/library/products.h"
#include "engine/cpu/memory/cpu_buffer.h"
#include "engine_harness.h"

namespace torch_xla::testing {
namespace {

bool has_same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

bool is_away(const EngineBufferRef& buffer) {
  return cpu::cpu_buffer(buffer).block()->away().any();
}

at::Tensor run(Executable& program, const std::vector<EngineBufferRef>& inputs) {
  RunArgs args;
  args.inputs = inputs;
  args.donated.resize(inputs.size());
  program.run(args);
  return download(args.outputs[0]);
}

// Numbers whose bits a conversion might change among them.
at::Tensor make_weight(c10::IntArrayRef sizes, at::ScalarType dtype) {
  at::Tensor weight = at::randn(sizes).to(dtype);
  weight.view({-1})[5] = -0.0F;
  weight.view({-1})[6] = std::numeric_limits<float>::denorm_min();
  weight.view({-1})[7] = -std::numeric_limits<float>::infinity();
  return weight;
}

// A product whose weight is away after two runs.
class EnginePartsAway : public ::testing::Test {
 protected:
  static constexpr int64_t kSize = 256, kRows = 24;

  void SetUp() override {
    if (!cpu::can_multiply_by_onednn()) {
      GTEST_SKIP() << "oneDNN packs nothing on this processor";
    }
    Program p;
    product_ = p.compile({p.library("aten::mm", {p.input(x_), p.input(weight_)}, {}, {{DType::BF16, {kRows, kSize}}})});
    Program q;
    const Ex weight = q.input(weight_);
    double_ = q.compile({weight + weight});
    first_ = multiply();
    EXPECT_FALSE(is_away(buffer_));
  }
  at::Tensor multiply() {
    return run(*product_, {upload(x_), buffer_});
  }

  const at::Tensor x_ = at::randn({kRows, kSize}).to(at::kBFloat16);
  const at::Tensor weight_ = make_weight({kSize, kSize}, at::kBFloat16).t();
  EngineBufferRef buffer_ = upload(weight_);
  std::shared_ptr<Executable> product_, double_;
  at::Tensor first_;
};

TEST_F(EnginePartsAway, TheHostReadsItsBits) {
  multiply();
  EXPECT_TRUE(is_away(buffer_));
  EXPECT_TRUE(has_same_bits(multiply(), first_));
  const void* address = buffer_->host_pointer();
  multiply();
  EXPECT_EQ(std::memcmp(address, weight_.const_data_ptr(), weight_.nbytes()), 0);
}

TEST_F(EnginePartsAway, AnotherProgramReadsItsBits) {
  multiply();
  EXPECT_TRUE(run(*double_, {buffer_}).equal(weight_ + weight_));
  EXPECT_FALSE(is_away(buffer_));
  EXPECT_TRUE(has_same_bits(download(buffer_), weight_));
  EXPECT_TRUE(has_same_bits(multiply(), first_));
  EXPECT_FALSE(is_away(buffer_)); // both forms are in use
}

TEST_F(EnginePartsAway, AProgramWritesOverIt) {
  multiply();
  RunArgs args;
  args.inputs = {std::move(buffer_)};
  args.donated = {true};
  double_->run(args);
  EXPECT_TRUE(download(args.outputs[0]).equal(weight_ + weight_));
}

TEST_F(EnginePartsAway, NotIfTheHostHasTheAddress) {
  const void* address = buffer_->host_pointer();
  multiply();
  EXPECT_FALSE(is_away(buffer_));
  EXPECT_EQ(std::memcmp(address, weight_.const_data_ptr(), weight_.nbytes()), 0);
}

TEST_F(EnginePartsAway, ManyThreadsReadIt) {
  for (int turn = 0; turn < 20; ++turn) {
    buffer_ = upload(weight_);
    multiply();
    std::atomic<int> wrong{0};
    std::vector<std::jthread> readers;
    for (int i = 0; i < 4; ++i) {
      readers.emplace_back([&] { wrong += std::memcmp(buffer_->host_pointer(), weight_.const_data_ptr(), weight_.nbytes()) != 0; });
    }
    EXPECT_TRUE(has_same_bits(multiply(), first_));
    readers.clear();
    EXPECT_EQ(wrong, 0);
  }
}

// A part of a buffer, whose first and last pages it shares with others.
TEST_F(EnginePartsAway, APart) {
  const at::Tensor whole = make_weight({3 * kSize + 8, kSize}, at::kBFloat16);
  Program p;
  const Ex all = p.input(whole);
  const Ex part{&p.b(), p.b().view(all.id(), {kSize, 1}, {kSize, kSize}, {1, kSize}, (8 + kSize) * kSize)};
  auto program = p.compile({p.library("aten::mm", {p.input(x_), part}, {}, {{DType::BF16, {kRows, kSize}}})});
  const EngineBufferRef buffer = upload(whole);
  const at::Tensor first = run(*program, {buffer, upload(x_)});
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_TRUE(has_same_bits(run(*program, {buffer, upload(x_)}), first));
  }
  EXPECT_TRUE(is_away(buffer));
  EXPECT_TRUE(has_same_bits(download(buffer), whole));
}

// The kernels are oneDNN's and those of our own, by pixel (of three parts) and by channel.
TEST(EngineConvolutionAway, TheHostReadsItsBits) {
  const std::vector<int64_t> one{1, 1}, zero{0, 0};
  struct Sizes {
    int64_t channels, kernel, groups;
  };
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const auto& [channels, kernel, groups] : {Sizes{64, 3, 1}, {64, 3, 2}, {144, 1, 1}, {64, 5, 64}}) {
      const at::Tensor x = at::randn({2, channels, 12, 12}).to(dtype).contiguous(at::MemoryFormat::ChannelsLast);
      const at::Tensor weight = make_weight({channels, channels / groups, kernel, kernel}, dtype), bias = at::zeros({channels}).to(dtype);
      const std::vector<int64_t>& padding = kernel == 1 ? zero : one;
      const Type type = type_of(at::convolution(x, weight, bias, one, padding, one, false, zero, groups));
      Program p;
      const Ex none{&p.b(), kNoValue};
      const std::vector<Ex> operands = {p.input(x), p.input(weight), p.input(bias), none, none, none, none, none};
      const Attrs attrs{one, padding, one, false, zero, groups, 0.0, std::string("none"), std::string()};
      auto program = p.compile({p.library("xla::fused_convolution", operands, attrs, {type})});
      const EngineBufferRef buffer = upload(weight), bias_buffer = upload(bias);
      for (int turn = 0; turn < 3; ++turn) {
        run(*program, {upload(x), buffer, bias_buffer});
      }
      EXPECT_TRUE(is_away(buffer)) << dtype << " " << channels << " " << groups;
      EXPECT_TRUE(has_same_bits(download(buffer), weight)) << dtype << " " << channels << " " << groups;
    }
  }
}

} // namespace
} // namespace torch_xla::testing
