// Who records and for how long, and the steps that run without a thread of the team meanwhile.
#include "engine/cpu/threads/leave.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "core/host_activity.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/host.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

// Longer than a turn that is short, and than a moment.
void pass_time() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// What holds for a moment only may be over where another process had the processor: whether it holds one time of several.
template <typename Test>
bool sometimes(Test test) {
  for (int i = 0; i < 20; ++i) {
    if (test()) {
      return true;
    }
  }
  return false;
}

TEST(HostActivity, TellsWhoRecordsForLong) {
  host_activity::Watch watch;
  {
    const host_activity::Pause pause;
  }
  pass_time();
  EXPECT_FALSE(watch.is_recording()) << "nothing is recorded";
  host_activity::note_operation();
  EXPECT_TRUE(watch.is_recording());
  pass_time();
  EXPECT_FALSE(watch.is_recording()) << "not any more";
  host_activity::note_operation();
  {
    const host_activity::Pause pause;
  }
  EXPECT_TRUE(host_activity::Watch::has_long_turns());
  EXPECT_FALSE(watch.is_recording()) << "it waits";
  EXPECT_TRUE(sometimes([&] {
    watch.expect_recording();
    return watch.is_recording();
  })) << "it has been told";
  EXPECT_TRUE(sometimes([&] {
    {
      const host_activity::Pause pause;
    }
    {
      const host_activity::Pause pause;
    }
    watch.is_recording(); // takes note of these
    host_activity::note_operation();
    return !host_activity::Watch::has_long_turns() && !watch.is_recording();
  })) << "a short turn";
}

int64_t count_ranges() {
  std::atomic<int64_t> ranges{0};
  share_out(8, 1, 1, [&](int64_t, int64_t) { ++ranges; });
  return ranges;
}

TEST(BesideRecorder, IsForStepsThatEndWithTheTurn) {
  const int threads = at::get_num_threads();
  at::set_num_threads(host().processors);
  if (host().processors < 2) {
    GTEST_SKIP() << "there is no processor to leave";
  }
  let_teams_sleep(false, host().processors); // other tests may have found others busy
  const auto pause = [] { const host_activity::Pause pause; };
  pause();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pause();
  EXPECT_TRUE(will_have_recorder_beside({0}));
  EXPECT_TRUE(will_have_recorder_beside({1000}));
  EXPECT_FALSE(will_have_recorder_beside({1'000'000})) << "longer than what is recorded will take";
  EXPECT_FALSE(will_have_recorder_beside({std::nullopt}));
  EXPECT_FALSE(has_recorder_beside({0})) << "nothing is recorded";
  EXPECT_TRUE(sometimes([] {
    host_activity::note_operation();
    return has_recorder_beside({0});
  }));
  let_teams_sleep(true, host().processors);
  EXPECT_FALSE(will_have_recorder_beside({0}));
  let_teams_sleep(false, host().processors);
  at::set_num_threads(host().processors - 1);
  EXPECT_FALSE(will_have_recorder_beside({0})) << "it has a processor";
  at::set_num_threads(threads);
}

TEST(BesideRecorder, IsForShortProgramsThatNobodyWaitsFor) {
  const int threads = at::get_num_threads();
  const int all = host().processors;
  if (all < 2) {
    GTEST_SKIP() << "there is no processor to leave";
  }
  at::set_num_threads(all);
  const int64_t kLongNs = (host_activity::kLongTurnNs + kInTheWayNs) * all / (all - 1);
  {
    const host_activity::Pause pause(/*needs_results=*/false);
  }
  EXPECT_TRUE(has_recorder_beside_all(kInTheWayNs));
  EXPECT_FALSE(has_recorder_beside_all(kLongNs + all)) << "a team takes less";
  pass_time();
  {
    const host_activity::Pause pause(/*needs_results=*/false);
    EXPECT_TRUE(has_recorder_beside_all(kLongNs)) << "the turn was long";
    EXPECT_FALSE(has_recorder_beside_all(kLongNs + all)) << "programs that are not short run step by step";
  }
  {
    const host_activity::Pause pause(/*needs_results=*/true);
    EXPECT_FALSE(has_recorder_beside_all(0)) << "a thread needs the results";
  }
  EXPECT_TRUE(has_recorder_beside_all(0));
  at::set_num_threads(all - 1);
  EXPECT_FALSE(has_recorder_beside_all(0)) << "it has a processor";
  at::set_num_threads(threads);
}

TEST(BesideRecorder, RunsAllStepsAlone) {
  int steps = 0;
  run_alone([&] {
    EXPECT_TRUE(is_beside_recorder());
    EXPECT_EQ(count_ranges(), 1);
    return ++steps < 3;
  });
  EXPECT_EQ(steps, 3);
  EXPECT_THROW(run_alone([]() -> bool { throw std::runtime_error("step"); }), std::runtime_error);
  EXPECT_FALSE(is_beside_recorder());
}

TEST(BesideRecorder, CostsWhatTheOtherThreadsTakeLonger) {
  const double unit = unit_ns();
  EXPECT_NEAR(static_cast<double>(cost_of_leaving(100, 2, 1)), 50 * unit, 1);
  EXPECT_NEAR(static_cast<double>(cost_of_leaving(100, 4, 3)), 100 * unit / 12, 1);
  EXPECT_NEAR(static_cast<double>(cost_of_leaving(100, 64, 63)), 100 * unit / (64 * 63), 1);
  EXPECT_NEAR(static_cast<double>(cost_of_leaving(100, 4, 1)), 75 * unit, 1) << "what ATen computes";
  EXPECT_EQ(cost_of_leaving(100, 1, 1), 0);
}

TEST(BesideRecorder, SharesOutAmongAllThreadsButTheOneThatSleeps) {
  const int threads = at::get_num_threads();
  for (const int team : {2, 3, 4, 6}) {
    at::set_num_threads(team);
    note_team();
    int steps = 0;
    run_beside_recorder({}, [&] {
      std::atomic<int64_t> sum{0};
      std::atomic<int64_t> ranges{0};
      share_out(1000, 10, 100, [&](int64_t begin, int64_t end) {
        ++ranges;
        for (int64_t i = begin; i < end; ++i) {
          sum += i;
        }
      });
      EXPECT_EQ(sum, 999 * 1000 / 2);
      EXPECT_EQ(ranges, team - 1);
      share_out(3, 4, 0, [&](int64_t begin, int64_t end) { EXPECT_EQ(end - begin, 3) << "one range"; });
      share_out(0, 1, 0, [&](int64_t begin, int64_t end) { EXPECT_EQ(begin, end); });
      return ++steps < 50;
    });
    EXPECT_EQ(steps, 50);
    EXPECT_FALSE(is_beside_recorder());
    EXPECT_THROW(
        run_beside_recorder(
            {},
            [] {
              share_out(100, 1, 100, [](int64_t, int64_t) { throw std::runtime_error("range"); });
              return false;
            }),
        std::runtime_error);
  }
  at::set_num_threads(threads);
}

TEST(Crew, WaitsForNobodyWhoIsLate) {
  Crew crew;
  crew.set_helpers(3); // and no helper comes
  int64_t done = 0;
  crew.share(10, 1, [&](int64_t begin, int64_t end) { done += end - begin; });
  EXPECT_EQ(done, 10);
  crew.end();
  crew.help(); // comes when it is over
}

TEST(BesideRecorder, RunsStepsOnOneThread) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  for (const bool has_team : {false, true}) {
    if (has_team) {
      note_team();
    }
    int steps = 0;
    bool told = false;
    run_beside_recorder(
        [&] { told = true; },
        [&] {
          EXPECT_TRUE(told);
          EXPECT_TRUE(is_beside_recorder());
          EXPECT_EQ(count_ranges(), 1);
          return ++steps < 3;
        });
    EXPECT_EQ(steps, 3);
    EXPECT_FALSE(is_beside_recorder());
    EXPECT_EQ(count_ranges(), 2);
    EXPECT_THROW(run_beside_recorder({}, []() -> bool { throw std::runtime_error("step"); }), std::runtime_error);
    EXPECT_FALSE(is_beside_recorder());
  }
  at::set_num_threads(threads);
}

} // namespace
} // namespace torch_xla::cpu
