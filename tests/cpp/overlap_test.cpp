// Collectives that run beside other steps: where they start and are waited for, that they do, and what a failure leaves.
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>

#include "core/observer.h"
#include "distributed/group.h"
#include "engine/cpu/schedule/verify.h"
#include "engine_harness.h"

namespace torch_xla::testing {
namespace {

using cpu::Schedule;
using cpu::StepKind;

constexpr const char* kGroup = "of the test";

class Done final : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    return true;
  }
};

// A group of which the test plays the other replicas.
class Backend final : public c10d::Backend {
 public:
  Backend() : c10d::Backend(/*rank=*/0, /*size=*/2) {}
  WorkRef allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& /*options*/) override {
    reduce(tensors[0]);
    return c10::make_intrusive<Done>();
  }
  std::function<void(at::Tensor&)> reduce;
};

// Counts the calls that have ended.
class Calls final : public observer::Observer {
 public:
  explicit Calls(std::string name) : name_(std::move(name)) {
    observer::add(*this);
  }
  ~Calls() override {
    observer::remove(*this);
  }
  void on_event(const observer::Event& event) override {
    if (event.phase == observer::Phase::kLibrary && event.name == name_) {
      std::lock_guard<std::mutex> lock(mutex_);
      ++ended_;
      changed_.notify_all();
    }
  }
  bool wait_for(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_ >= count; });
  }

 private:
  const std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
};

class OverlapTest : public ::testing::Test {
 protected:
  OverlapTest() : backend_(c10::make_intrusive<Backend>()) {
    auto store = c10::make_intrusive<c10d::HashStore>();
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 2);
    auto alone = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1); // nobody to compare calls with
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend_);
    add_group(kGroup, group, alone, 0);
    backend_->reduce = [](at::Tensor& t) { t.mul_(2); };
  }
  ~OverlapTest() override {
    remove_group(kGroup);
  }

  Ex reduce(Ex x) {
    return program_.library("xla::all_reduce", {x}, {std::string("sum"), std::string(kGroup)}, {square_});
  }
  Ex multiply(Ex a, Ex b) {
    return program_.library("aten::mm", {a, b}, {}, {square_});
  }
  Schedule schedule_of(const std::vector<Ex>& outputs) {
    for (const Ex& e : outputs) {
      program_.graph().outputs.push_back(e.id());
    }
    return cpu::make_schedule(program_.graph(), 0, /*fusion=*/true);
  }
  // The kinds of the steps as letters: k, l, u, s, w.
  static std::string kinds(const Schedule& s) {
    std::string text;
    for (const cpu::Step& step : s.steps) {
      text += "klusw"[static_cast<size_t>(step.kind)];
    }
    return text;
  }
  static size_t find_step(const Schedule& s, StepKind kind) {
    return static_cast<size_t>(
        std::find_if(s.steps.begin(), s.steps.end(), [&](const cpu::Step& step) { return step.kind == kind; }) - s.steps.begin());
  }
  static void expect_fault(const Schedule& s, void (*verify)(const Schedule&, const char*), const std::string& message) {
    try {
      verify(s, "stage");
      ADD_FAILURE() << "no fault was found";
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
  }

  c10::intrusive_ptr<Backend> backend_;
  Program program_;
  const Type square_{DType::F32, {16, 16}};
  const at::Tensor tensor_ = at::rand({16, 16});
  Ex x_ = program_.input(tensor_);
};

// As a backward and an optimizer record it: products, sums over replicas, then what uses these.
TEST_F(OverlapTest, StartsWhenItsOperandExistsAndEndsBeforeItsReader) {
  Ex first = multiply(x_, x_);
  Ex second = multiply(first, x_);
  Ex reduced = reduce(first), other = reduce(second);
  EXPECT_EQ(kinds(schedule_of({other + x_, reduced * 2.0})), "lslwlkk");
}

TEST_F(OverlapTest, WhatHasNothingBesideItStaysACall) {
  EXPECT_EQ(kinds(schedule_of({reduce(multiply(x_, x_)) + 1.0})), "llk");
}

// It would hold a second copy of a parameter from the beginning on.
TEST_F(OverlapTest, CollectiveOfAParameterStaysWhereItIs) {
  Ex product = multiply(x_, x_);
  Ex reduced = reduce(x_);
  EXPECT_EQ(kinds(schedule_of({reduced + product})), "llk");
}

TEST_F(OverlapTest, WhatNoCollectiveNeedsKeepsItsPlace) {
  Ex first = multiply(x_, x_);
  Ex kept = multiply(first, first); // an output: in front of the collectives in the graph, and so in the program
  Ex second = multiply(first, x_);
  Ex reduced = reduce(first), other = reduce(second);
  Schedule s = schedule_of({kept, reduced + other});
  EXPECT_EQ(kinds(s), "llslwlk");
  EXPECT_EQ(s.laid_out.graph.nodes[s.steps[1].node].result(), s.laid_out.graph.outputs[0]);
}

TEST_F(OverlapTest, LastUserOfAValueGivesItsMemoryToTheSum) {
  Ex reduced = reduce(multiply(x_, x_));
  Ex other = multiply(x_, x_ + 1.0);
  Schedule s = schedule_of({reduced + other});
  const cpu::Step& step = s.steps[find_step(s, StepKind::kStart)];
  const Node& node = s.laid_out.graph.nodes[step.node];
  EXPECT_EQ(s.plan.memory_of[node.operands[0]], s.plan.memory_of[node.result()]);
}

// The first one still sends it.
TEST_F(OverlapTest, ValueOfTwoCollectivesGivesItsMemoryToNone) {
  Ex first = multiply(x_, x_);
  Ex reduced = reduce(first), again = reduce(first);
  Schedule s = schedule_of({reduced + again + multiply(x_, x_ + 1.0)});
  for (const cpu::Step& step : s.steps) {
    if (step.kind == StepKind::kStart) {
      const Node& node = s.laid_out.graph.nodes[step.node];
      EXPECT_NE(s.plan.memory_of[node.operands[0]], s.plan.memory_of[node.result()]);
    }
  }
  EXPECT_EQ(std::count_if(s.steps.begin(), s.steps.end(), [](const auto& step) { return step.kind == StepKind::kStart; }), 2);
}

// ---- Runs ----

TEST_F(OverlapTest, RunsBesideOtherSteps) {
  Ex first = multiply(x_, x_);
  Ex second = multiply(first, x_);
  Ex reduced = reduce(first), other = reduce(second);
  Ex sum = reduced + other + multiply(second, x_);
  at::Tensor a = tensor_.mm(tensor_), b = a.mm(tensor_);
  at::Tensor expected = a * 2 + b * 2 + b.mm(tensor_);
  for (bool fusion : {true, false}) {
    Calls products("aten::mm");
    backend_->reduce = [&](at::Tensor& t) {
      EXPECT_TRUE(!fusion || products.wait_for(3)); // the program has gone on
      t.mul_(2);
    };
    auto executable = program_.compile({sum}, fusion);
    EXPECT_EQ(executable->text().find("start xla::all_reduce") != std::string::npos, fusion) << executable->text();
    RunArgs args = program_.args();
    executable->run(args);
    EXPECT_TRUE(at::allclose(download(args.outputs[0]), expected));
  }
}

// The other transfer is not begun, the error names the operation, inputs that are given away come back, and the next run is sound.
TEST_F(OverlapTest, FailureOfATransfer) {
  Ex first = multiply(x_, x_);
  Ex second = multiply(first, x_);
  Ex reduced = reduce(first), other = reduce(second);
  Ex updated = x_ + reduced + other;
  auto executable = program_.compile({updated});
  int calls = 0;
  backend_->reduce = [&](at::Tensor& t) {
    ++calls;
    t.zero_();
    TORCH_CHECK(false, "a connection was lost");
  };
  RunArgs args = program_.args(/*donate=*/true);
  args.restored = {true};
  EngineBufferRef input = args.inputs[0];
  try {
    executable->run(args);
    ADD_FAILURE() << "the run did not fail";
  } catch (const StepError& e) {
    EXPECT_NE(std::string(e.what()).find("xla::all_reduce: a connection was lost"), std::string::npos) << e.what();
  }
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(download(input), tensor_));
  backend_->reduce = [](at::Tensor& t) { t.mul_(2); };
  args = program_.args();
  executable->run(args);
  at::Tensor a = tensor_.mm(tensor_);
  EXPECT_TRUE(at::allclose(download(args.outputs[0]), tensor_ + a * 2 + a.mm(tensor_) * 2));
}

// Holds a run up behind its second product.
class Pause final : public observer::Observer {
 public:
  Pause() {
    observer::add(*this);
  }
  ~Pause() override {
    observer::remove(*this);
  }
  void on_event(const observer::Event& event) override {
    if (event.phase == observer::Phase::kLibrary && event.name == "aten::mm" && ++products_ == 2) {
      goes_on_.get_future().wait();
    }
  }
  void go_on() {
    goes_on_.set_value();
  }

 private:
  int products_ = 0;
  std::promise<void> goes_on_;
};

// Memory of the run is in use until the transfer has ended.
TEST_F(OverlapTest, FailureBesideATransfer) {
  Ex first = multiply(x_, x_);
  Ex reduced = reduce(first);
  Ex wrong = program_.input(at::full({1}, 100, at::kLong));
  Ex row = program_.library("aten::index_select", {multiply(first, x_), wrong}, {int64_t{0}}, {{DType::F32, {1, 16}}});
  auto executable = program_.compile({reduced + row});
  Pause pause;
  std::atomic<bool> ended = false;
  backend_->reduce = [&](at::Tensor& t) {
    pause.go_on();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    t.mul_(2);
    ended = true;
  };
  RunArgs args = program_.args();
  EXPECT_THROW(executable->run(args), StepError);
  EXPECT_TRUE(ended);
}

// ---- Faults ----

class OverlapFaults : public OverlapTest {
 protected:
  OverlapFaults() {
    Ex first = multiply(x_, x_);
    Ex second = multiply(first, x_);
    Ex reduced = reduce(first), other = reduce(second);
    s_ = schedule_of({reduced + other + multiply(second, second)});
    EXPECT_EQ(kinds(s_), "lslslwwk");
  }
  Schedule s_;
};

TEST_F(OverlapFaults, RightOnesPass) {
  for (auto verify : {cpu::verify_steps, cpu::verify_accesses, cpu::verify_memory}) {
    EXPECT_NO_THROW(verify(s_, "stage")) << cpu::schedule_text(s_);
  }
}

TEST_F(OverlapFaults, AnotherOrderThanTheGraphs) {
  std::swap(s_.steps[1].node, s_.steps[3].node);
  expect_fault(s_, cpu::verify_steps, "step 1: reads %");
  std::swap(s_.steps[1], s_.steps[2]);
  expect_fault(s_, cpu::verify_steps, "step 3: runs before a collective that is behind it in the graph");
}

TEST_F(OverlapFaults, WaitsInAnotherOrder) {
  std::swap(s_.steps[5], s_.steps[6]);
  expect_fault(s_, cpu::verify_steps, "step 5: does not wait for the call that was started first");
}

TEST_F(OverlapFaults, NotWaitedFor) {
  s_.steps.erase(s_.steps.begin() + 6);
  expect_fault(s_, cpu::verify_steps, "which no step before it stores");
}

TEST_F(OverlapFaults, EndsTooEarly) {
  s_.accesses[1].until = 2;
  expect_fault(s_, cpu::verify_accesses, "step 1: ends with step 2, which does not wait for it");
}

TEST_F(OverlapFaults, MemoryOfATransferIsWritten) {
  ValueId sum = s_.laid_out.graph.nodes[s_.steps[1].node].result();
  ValueId third = s_.laid_out.graph.nodes[s_.steps[4].node].result();
  s_.plan.memory_of[third] = s_.plan.memory_of[sum];
  expect_fault(
      s_, cpu::verify_memory, str("step 4: writes %", third, " to memory ", s_.plan.memory_of[sum], ", which is in use to step 5"));
}

TEST_F(OverlapFaults, MemoryEndsBeforeTheTransfer) {
  ValueId operand = s_.laid_out.graph.nodes[s_.steps[3].node].operands[0];
  s_.plan.memories[s_.plan.memory_of[operand]].last = 4;
  expect_fault(s_, cpu::verify_memory, "which lives from step");
}

} // namespace
} // namespace torch_xla::testing
