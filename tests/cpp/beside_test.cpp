// Library calls that run beside each other, LSTMs: which do, what they compute, and what a failure leaves.
#include <gtest/gtest.h>

#include "core/observer.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/schedule/verify.h"
#include "engine_harness.h"

namespace torch_xla::testing {
namespace {

using cpu::Schedule;

constexpr int64_t kSteps = 5;
constexpr int64_t kBatch = 3;
constexpr int64_t kHidden = 16;

class BesideTest : public ::testing::Test {
 protected:
  // An LSTM, the weights of all being the same.
  Ex lstm(Ex x, bool reverse) {
    Attrs attrs{reverse, std::vector<int64_t>(), int64_t{2}, kHidden, int64_t{1}, true, false, false, false};
    Type state{DType::F32, {kBatch, kHidden}};
    std::vector<Type> results{{DType::F32, {kSteps, kBatch, kHidden}}, state, state, {DType::U8, {0}}};
    return program_.library("aten::mkldnn_rnn_layer", {x, w_ih_, w_hh_, bias_, other_bias_, state_, state_}, attrs, results);
  }
  at::Tensor expected_lstm(const at::Tensor& x, bool reverse) const {
    return std::get<0>(at::mkldnn_rnn_layer(
        x, weight_, weight_, ones_, ones_, zeros_, zeros_, reverse, {}, 2, kHidden, 1, true, false, false, /*train=*/false));
  }
  Schedule schedule_of(const std::vector<Ex>& outputs) {
    for (const Ex& e : outputs) {
      program_.graph().outputs.push_back(e.id());
    }
    return cpu::make_schedule(program_.graph(), 0, /*fusion=*/true);
  }
  // Step::beside of each LSTM; a point for other steps.
  static std::string beside(const Schedule& s) {
    std::string text;
    for (const cpu::Step& step : s.steps) {
      bool call = step.kind == cpu::StepKind::kLibrary;
      text += call ? std::to_string(step.beside) : ".";
    }
    return text;
  }

  Program program_;
  const at::Tensor tensor_ = at::rand({kSteps, kBatch, kHidden});
  const at::Tensor weight_ = at::rand({4 * kHidden, kHidden}) - 0.5;
  const at::Tensor ones_ = at::ones({4 * kHidden});
  const at::Tensor zeros_ = at::zeros({kBatch, kHidden});
  Ex x_ = program_.input(tensor_);
  Ex w_ih_ = program_.input(weight_);
  Ex w_hh_ = program_.input(weight_);
  Ex bias_ = program_.input(ones_);
  Ex other_bias_ = bias_;
  Ex state_ = program_.input(zeros_);
};

TEST_F(BesideTest, ThoseThatNeedNothingOfEachOther) {
  Ex first = lstm(x_, false) + 1.0;
  Ex second = lstm(x_, true), third = lstm(x_ + x_, false); // what the third one reads is computed before all
  EXPECT_EQ(beside(schedule_of({first, second, third})), ".210.");
}

TEST_F(BesideTest, NotTheNextLayer) {
  Ex forward = lstm(x_, false), backward = lstm(x_, true);
  Ex sum = forward + backward;
  EXPECT_EQ(beside(schedule_of({lstm(sum, false) + lstm(sum, true), lstm(forward, true)})), "10.210.");
}

TEST_F(BesideTest, NoMoreThanTheLimit) {
  Ex sum = x_;
  for (size_t i = 0; i <= cpu::kMaxCallsBeside; ++i) {
    sum = sum + lstm(x_, false) * static_cast<double>(i);
  }
  Schedule s = schedule_of({sum});
  EXPECT_EQ(s.steps[0].beside, cpu::kMaxCallsBeside - 1);
  EXPECT_EQ(s.steps[cpu::kMaxCallsBeside].beside, 0);
  EXPECT_EQ(s.steps[cpu::kMaxCallsBeside - 1].beside, 0);
}

TEST_F(BesideTest, ValuesAreATens) {
  std::vector<Ex> outputs;
  std::vector<at::Tensor> expected;
  for (int i = 0; i < 5; ++i) { // one is left over where there are two or four threads
    outputs.push_back(lstm(x_ * static_cast<double>(i), i % 2));
    expected.push_back(expected_lstm(tensor_ * i, i % 2));
  }
  program_.check(outputs, expected);
}

// Counts the calls that have begun.
class Calls final : public observer::Observer {
 public:
  Calls() {
    observer::add(*this);
  }
  ~Calls() override {
    observer::remove(*this);
  }
  void on_event(const observer::Event& event) override {
    number += event.phase == observer::Phase::kLibrary ? 1 : 0;
  }
  int number = 0;
};

TEST_F(BesideTest, ARunThatIsCancelledBeginsNoMore) {
  auto executable = program_.compile({lstm(x_, false) + lstm(x_, true)});
  RunArgs args = program_.args();
  const std::atomic<uint64_t> first_kept{1};
  args.options.first_kept = &first_kept;
  Calls calls;
  EXPECT_THROW(executable->run(args), UserError);
  EXPECT_EQ(calls.number, 0);
  at::Tensor expected = expected_lstm(tensor_, false) + expected_lstm(tensor_, true);
  EXPECT_TRUE(at::allclose(program_.run(*executable)[0], expected, 1e-5, 1e-5));
  EXPECT_EQ(calls.number, 4); // of two runs
}

// Of another size than the first bias: ATen refuses to add them in the run.
TEST_F(BesideTest, TheErrorOfOne) {
  Ex right = lstm(x_, false);
  other_bias_ = program_.input(at::ones({3}));
  auto executable = program_.compile({right, lstm(x_, true)});
  for (int repeat = 0; repeat < 2; ++repeat) {
    RunArgs args = program_.args();
    try {
      executable->run(args);
      ADD_FAILURE() << "the run did not fail";
    } catch (const StepError& e) {
      EXPECT_NE(std::string(e.what()).find("aten::mkldnn_rnn_layer: "), std::string::npos) << e.what();
    }
  }
}

// ---- Faults ----

class BesideFaults : public BesideTest {
 protected:
  Schedule s_ = schedule_of({lstm(x_, false) + lstm(x_, true)});

  void expect_fault(void (*verify)(const Schedule&, const char*), const std::string& message) const {
    try {
      verify(s_, "stage");
      ADD_FAILURE() << "no fault was found";
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
  }
};

TEST_F(BesideFaults, RightOnesPass) {
  for (auto verify : {cpu::verify_steps, cpu::verify_accesses, cpu::verify_memory}) {
    EXPECT_NO_THROW(verify(s_, "stage")) << cpu::schedule_text(s_);
  }
}

TEST_F(BesideFaults, NotInARow) {
  s_.steps[0].beside = 2;
  expect_fault(cpu::verify_steps, "step 1: runs beside 0 others, behind one with 2");
}

TEST_F(BesideFaults, OneReadsAnothersResult) {
  s_.laid_out.graph.nodes[s_.steps[1].node].operands[5] = s_.laid_out.graph.nodes[s_.steps[0].node].result(1);
  expect_fault(cpu::verify_steps, "which no step before it stores");
}

TEST_F(BesideFaults, EndsTooEarly) {
  s_.accesses[0].until = 0;
  expect_fault(cpu::verify_accesses, "step 0: ends with step 0");
}

} // namespace
} // namespace torch_xla::testing
