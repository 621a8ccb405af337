// The step observer: who is told what, and when nobody is.
#include "core/observer.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "ir/builder.h"
#include "trace/source_line.h"

namespace torch_xla::observer {
namespace {

struct Seen final : Observer {
  void on_event(const Event& event) override {
    names.emplace_back(event.name);
    devices.push_back(event.device);
    last = event;
  }
  std::vector<std::string> names;
  std::vector<int> devices;
  Event last;
};

TEST(ObserverTest, SpansAreToldAtTheirEndInTheOrderOfTheirEnds) {
  Seen seen;
  add(seen);
  {
    Span outer(Phase::kCompile, kNoDevice, "outer");
    Span inner(Phase::kPass, kNoDevice, "inner", 7);
  }
  remove(seen);
  EXPECT_EQ(seen.names, (std::vector<std::string>{"inner", "outer"}));
  EXPECT_EQ(seen.last.phase, Phase::kCompile);
  EXPECT_LE(seen.last.start_ns, seen.last.end_ns);
}

TEST(ObserverTest, AnEventCarriesDeviceLineBytesAndRun) {
  Seen seen;
  add(seen);
  {
    Span span(Phase::kUpload, 1, "x", 7);
    span.set_bytes(64);
    span.set_run(3);
  }
  remove(seen);
  EXPECT_EQ(seen.last.line, 7);
  EXPECT_EQ(seen.last.bytes, 64);
  EXPECT_EQ(seen.last.run, 3u);
  EXPECT_EQ(seen.last.device, 1);
}

TEST(ObserverTest, NobodyIsToldBeforeAddAndAfterRemove) {
  Seen seen;
  EXPECT_FALSE(is_on(Phase::kPass));
  {
    Span before(Phase::kPass, kNoDevice, "before");
  }
  add(seen);
  EXPECT_TRUE(is_on(Phase::kPass));
  Span* across = new Span(Phase::kPass, kNoDevice, "ends after remove");
  remove(seen);
  EXPECT_FALSE(is_on(Phase::kPass));
  delete across;
  EXPECT_TRUE(seen.names.empty());
}

TEST(ObserverTest, TwoObserversSeeTheSame) {
  Seen a;
  Seen b;
  add(a);
  add(b);
  {
    Span span(Phase::kPass, kNoDevice, "both");
  }
  remove(a);
  {
    Span span(Phase::kPass, kNoDevice, "b only");
  }
  remove(b);
  EXPECT_EQ(a.names, (std::vector<std::string>{"both"}));
  EXPECT_EQ(b.names, (std::vector<std::string>{"both", "b only"}));
}

TEST(ObserverTest, AnObserverIsToldOfThePhasesThatItWants) {
  Seen some;
  Seen all;
  add(some, phase_bits(Phase::kPass, Phase::kWait));
  EXPECT_FALSE(is_on(Phase::kRecord));
  EXPECT_TRUE(is_on(Phase::kWait));
  add(all);
  EXPECT_TRUE(is_on(Phase::kRecord));
  {
    Span wanted(Phase::kPass, kNoDevice, "pass");
    Span other(Phase::kKernel, kNoDevice, "kernel");
  }
  remove(all);
  EXPECT_FALSE(is_on(Phase::kRecord));
  remove(some);
  EXPECT_EQ(some.names, (std::vector<std::string>{"pass"}));
  EXPECT_EQ(all.names, (std::vector<std::string>{"kernel", "pass"}));
}

TEST(ObserverTest, EventsOfThreadsComeOneAtATime) {
  Seen seen;
  add(seen);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) {
        Span span(Phase::kPass, kNoDevice, "thread");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  remove(seen);
  EXPECT_EQ(seen.names.size(), 2000u);
}

int num_walks = 0;

TEST(ObserverTest, TheUsersLineIsLookedForWhereSomebodyListens) {
  num_walks = 0;
  auto walk = []() -> int64_t { return ++num_walks; };
  set_location_hooks(walk, walk, nullptr);
  EXPECT_EQ(observed_location(Phase::kDownload), -1);
  EXPECT_EQ(observed_call(Phase::kDownload), -1);
  EXPECT_EQ(num_walks, 0);
  Seen seen;
  add(seen, phase_bits(Phase::kDownload));
  EXPECT_EQ(observed_location(Phase::kDownload), 1);
  EXPECT_EQ(observed_call(Phase::kDownload), 2);
  EXPECT_EQ(observed_location(Phase::kUpload), -1);
  remove(seen);
  set_location_hooks(nullptr, nullptr, nullptr);
}

// ---- Whose the events of compiling are ----
Graph make_graph() {
  Graph graph;
  Builder builder(graph);
  Ex x{&builder, graph.add_parameter({DType::F32, {7, 3}})};
  graph.outputs = {(x + x).id()};
  return graph;
}

TEST(ObserverTest, PassesKnowTheirDevice) {
  Seen seen;
  add(seen);
  CompileOptions options;
  options.device = 1;
  cpu_engine().compile_trace(make_graph(), options);
  remove(seen);
  EXPECT_GE(seen.devices.size(), 9u); // four passes, five stages
  for (size_t i = 0; i < seen.devices.size(); ++i) {
    EXPECT_EQ(seen.devices[i], seen.names[i] == "kernel" ? kNoDevice : 1) << seen.names[i];
  }
}

TEST(ObserverTest, EachPhaseHasAText) {
  for (int i = 0; i < kNumPhases; ++i) {
    EXPECT_STRNE(phase_text(static_cast<Phase>(i)), "");
  }
}

} // namespace
} // namespace torch_xla::observer
