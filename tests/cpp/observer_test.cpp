// The step observer: who is told what, and when nobody is.
#include "core/observer.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace torch_xla::observer {
namespace {

struct Seen final : Observer {
  void on_event(const Event& event) override {
    names.emplace_back(event.name);
    last = event;
  }
  std::vector<std::string> names;
  Event last;
};

TEST(ObserverTest, SpansAreToldAtTheirEndInTheOrderOfTheirEnds) {
  Seen seen;
  add(seen);
  {
    Span outer(Phase::kCompile, "outer");
    Span inner(Phase::kPass, "inner", 7);
  }
  remove(seen);
  EXPECT_EQ(seen.names, (std::vector<std::string>{"inner", "outer"}));
  EXPECT_EQ(seen.last.phase, Phase::kCompile);
  EXPECT_LE(seen.last.start_ns, seen.last.end_ns);
}

TEST(ObserverTest, AnEventCarriesLineBytesAndRun) {
  Seen seen;
  add(seen);
  {
    Span span(Phase::kUpload, "x", 7);
    span.set_bytes(64);
    span.set_run(3, 1);
  }
  remove(seen);
  EXPECT_EQ(seen.last.line, 7);
  EXPECT_EQ(seen.last.bytes, 64);
  EXPECT_EQ(seen.last.run, 3u);
  EXPECT_EQ(seen.last.device, 1);
}

TEST(ObserverTest, NobodyIsToldBeforeAddAndAfterRemove) {
  Seen seen;
  EXPECT_FALSE(is_on());
  {
    Span before(Phase::kPass, "before");
  }
  add(seen);
  EXPECT_TRUE(is_on());
  Span* across = new Span(Phase::kPass, "ends after remove");
  remove(seen);
  EXPECT_FALSE(is_on());
  delete across;
  EXPECT_TRUE(seen.names.empty());
}

TEST(ObserverTest, TwoObserversSeeTheSame) {
  Seen a;
  Seen b;
  add(a);
  add(b);
  {
    Span span(Phase::kPass, "both");
  }
  remove(a);
  {
    Span span(Phase::kPass, "b only");
  }
  remove(b);
  EXPECT_EQ(a.names, (std::vector<std::string>{"both"}));
  EXPECT_EQ(b.names, (std::vector<std::string>{"both", "b only"}));
}

TEST(ObserverTest, EventsOfThreadsComeOneAtATime) {
  Seen seen;
  add(seen);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) {
        Span span(Phase::kPass, "thread");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  remove(seen);
  EXPECT_EQ(seen.names.size(), 2000u);
}

TEST(ObserverTest, EachPhaseHasAText) {
  for (int i = 0; i < kNumPhases; ++i) {
    EXPECT_STRNE(phase_text(static_cast<Phase>(i)), "");
  }
}

} // namespace
} // namespace torch_xla::observer
