// Who records and for how long, and the steps that run on one thread meanwhile.
#include "engine/cpu/threads/beside_recorder.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "core/host_activity.h"
#include "engine/cpu/cost.h"
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
  share_out(8, 1, kMaxWorthAlone, [&](int64_t, int64_t) { ++ranges; });
  return ranges;
}

TEST(BesideRecorder, IsForStepsThatEndWithTheTurn) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  if (omp_get_num_procs() != 2) {
    GTEST_SKIP() << "a recorder has a processor beside two threads, or has none";
  }
  const auto pause = [] { const host_activity::Pause pause; };
  pause();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pause();
  EXPECT_TRUE(will_have_recorder_beside(0));
  EXPECT_TRUE(will_have_recorder_beside(1000));
  EXPECT_FALSE(will_have_recorder_beside(1'000'000)) << "longer than what is recorded will take";
  EXPECT_FALSE(will_have_recorder_beside(std::nullopt));
  EXPECT_FALSE(has_recorder_beside(0)) << "nothing is recorded";
  EXPECT_TRUE(sometimes([] {
    host_activity::note_operation();
    return has_recorder_beside(0);
  }));
  let_teams_sleep(true, 2);
  EXPECT_FALSE(will_have_recorder_beside(0));
  let_teams_sleep(false, 2);
  at::set_num_threads(3);
  EXPECT_FALSE(will_have_recorder_beside(0));
  at::set_num_threads(threads);
}

TEST(BesideRecorder, IsForShortProgramsThatNobodyWaitsFor) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  if (omp_get_num_procs() != 2) {
    GTEST_SKIP() << "a recorder has a processor beside two threads, or has none";
  }
  constexpr int64_t kLongNs = 2 * (host_activity::kLongTurnNs + kInTheWayNs);
  {
    const host_activity::Pause pause(/*needs_results=*/false);
  }
  EXPECT_TRUE(has_recorder_beside_all(2 * kInTheWayNs));
  EXPECT_FALSE(has_recorder_beside_all(kLongNs + 2)) << "a team takes less";
  pass_time();
  {
    const host_activity::Pause pause(/*needs_results=*/false);
    EXPECT_TRUE(has_recorder_beside_all(kLongNs)) << "the turn was long";
    EXPECT_FALSE(has_recorder_beside_all(kLongNs + 2)) << "programs that are not short run step by step";
  }
  {
    const host_activity::Pause pause(/*needs_results=*/true);
    EXPECT_FALSE(has_recorder_beside_all(0)) << "a thread needs the results";
  }
  EXPECT_TRUE(has_recorder_beside_all(0));
  at::set_num_threads(3);
  EXPECT_FALSE(has_recorder_beside_all(0));
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
