// The pass attention_in_turns: loops over blocks of queries compute what the call does.
#include <cmath>

#include "engine_harness.h"
#include "passes/passes.h"
#include "stablehlo/writer.h"

namespace torch_xla {
namespace {

using testing::Program;

constexpr const char* kAttention = "aten::_scaled_dot_product_flash_attention_for_cpu";
constexpr const char* kBackward = "aten::_scaled_dot_product_flash_attention_for_cpu_backward";

// Attention of 48 queries and keys, 2 heads of 8; the inputs.
std::vector<at::Tensor> make_call(Program& p, bool causal, at::ScalarType dtype = at::kFloat) {
  at::manual_seed(5);
  std::vector<at::Tensor> inputs;
  std::vector<Ex> operands;
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(at::randn({1, 2, 48, 8}).to(dtype));
    operands.push_back(p.input(inputs.back()));
  }
  operands.push_back({&p.b(), kNoValue});
  const Type output = testing::type_of(inputs[0]);
  Ex first = p.library(kAttention, operands, {0.0, causal, Attr()}, {output, {DType::F32, {1, 2, 48}}});
  p.graph().outputs = {first.id(), first.id() + 1};
  return inputs;
}

// Output and logarithms of sums, by the definition.
std::vector<at::Tensor> compute(const std::vector<at::Tensor>& inputs, bool causal) {
  at::Tensor scores = at::matmul(inputs[0], inputs[1].transpose(2, 3)) / std::sqrt(8.0);
  scores = causal ? scores.masked_fill(at::ones({48, 48}, at::kBool).triu(1), -INFINITY) : scores;
  return {at::matmul(scores.softmax(-1), inputs[2]), scores.logsumexp(-1)};
}

class AttentionInTurnsTest : public ::testing::TestWithParam<bool> {};

TEST_P(AttentionInTurnsTest, ComputesTheSame) {
  Program p;
  std::vector<at::Tensor> expected = compute(make_call(p, GetParam()), GetParam());
  std::optional<Graph> turning = attention_in_turns(p.graph(), 2 * 48 * 20); // 16 of the 48 rows: 20 do not divide them
  ASSERT_TRUE(turning);
  std::string text = print_graph(*turning);
  EXPECT_NE(text.find("xla::loop"), text.npos) << text;
  auto executable = cpu_engine().compile_trace(*turning);
  std::vector<at::Tensor> got = p.run(*executable);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-5, 1e-5)) << i << "\n" << text;
  }
}

TEST_P(AttentionInTurnsTest, ComputesTheSameGradients) {
  const bool causal = GetParam();
  at::manual_seed(6);
  std::vector<at::Tensor> inputs; // gradient, query, key, value
  for (int i = 0; i < 4; ++i) {
    inputs.push_back(at::randn({1, 2, 48, 8}).set_requires_grad(i > 0));
  }
  const std::vector<at::Tensor> forward = compute({inputs[1], inputs[2], inputs[3]}, causal);
  forward[0].backward(inputs[0]);
  Program p;
  std::vector<Ex> operands;
  for (const at::Tensor& t :
       {inputs[0], inputs[1].detach(), inputs[2].detach(), inputs[3].detach(), forward[0].detach(), forward[1].detach()}) {
    operands.push_back(p.input(t));
  }
  operands.push_back({&p.b(), kNoValue});
  const Type type{DType::F32, {1, 2, 48, 8}};
  Ex first = p.library(kBackward, operands, {0.0, causal, Attr()}, {type, type, type});
  p.graph().outputs = {first.id(), first.id() + 1, first.id() + 2};
  std::optional<Graph> turning = attention_in_turns(p.graph(), 2 * 48 * 20);
  ASSERT_TRUE(turning);
  std::string text = print_graph(*turning);
  EXPECT_NE(text.find("xla::loop"), text.npos) << text;
  std::vector<at::Tensor> got = p.run(*cpu_engine().compile_trace(*turning));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::allclose(got[i], inputs[i + 1].grad(), 1e-4, 1e-5)) << i << "\n" << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Causal, AttentionInTurnsTest, ::testing::Bool());

TEST(AttentionInTurns, LeavesWhatFitsOrHasNoBlocks) {
  Program p;
  make_call(p, true);
  EXPECT_FALSE(attention_in_turns(p.graph(), 2 * 48 * 48)) << "all scores fit";
  EXPECT_FALSE(attention_in_turns(p.graph(), 2 * 48 * 15)) << "a block would have less than 16 rows";
}

// The program of a TPU: 4,096 tokens.
TEST(AttentionInTurns, TpusTakeIt) {
  Graph graph;
  const Type type{DType::BF16, {1, 32, 4096, 64}};
  const Type results[] = {type, {DType::F32, {1, 32, 4096}}};
  InlineVec<ValueId, 4> operands{graph.add_parameter(type), graph.add_parameter(type), graph.add_parameter(type), kNoValue};
  graph.outputs = {graph.add_node(get_op(kAttention), operands, {0.0, true, Attr()}, results)};
  auto text_for = [&](const char* hardware) { return write_stablehlo(run_passes(graph, 0, stablehlo_rules(hardware))); };
  EXPECT_NE(text_for("TPU").find("stablehlo.while"), std::string::npos);
  EXPECT_EQ(text_for("CUDA").find("stablehlo.while"), std::string::npos);
}

} // namespace
} // namespace torch_xla
