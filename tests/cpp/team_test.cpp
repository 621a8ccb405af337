// The processors that a run may use, and how its threads wait for each other while others want them.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <thread>

#include "engine/cpu/cost.h"
#include "engine/cpu/host.h"
#include "engine/cpu/threads/processors.h"
#include "engine/cpu/threads/team.h"

namespace torch_xla::cpu {
namespace {

TEST(Processors, TimesOfTheAllowedOnes) {
  const std::string text =
      "cpu  60 0 60 600 60 0 0 60 0 0\ncpu0 10 1 20 300 30 2 3 40 5 5\ncpu1 1 1 1 1 1 1 1 1 0 0\ncpu12 100 0 0 200 0 0 0 0 0 0\nintr 5 6\n";
  ProcessorTimes times = read_times(text, {0, 12}, 100);
  EXPECT_DOUBLE_EQ(times.idle, 5.3);
  EXPECT_DOUBLE_EQ(times.told, 7.06);
  EXPECT_EQ(read_times("", {0}, 100).told, 0);
}

TEST(Processors, OwnWorkIsNoForeignLoad) {
  ForeignLoad load;
  EXPECT_EQ(load.look(), std::nullopt);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::optional<double> others = load.look();
  if (others) { // some sandboxes show no times
    EXPECT_GE(*others, 0);
    EXPECT_LE(*others, static_cast<double>(std::thread::hardware_concurrency()) + 0.5);
  }
}

// In how many ranges a team does work.
int64_t count_ranges(int64_t worth) {
  std::atomic<int64_t> ranges{0};
  share_out(8, 1, worth, [&](int64_t begin, int64_t end) {
    EXPECT_LT(begin, end);
    EXPECT_TRUE(!is_worth_no_wait(worth, 2) || at::get_num_threads() == 1);
    ++ranges;
  });
  return ranges;
}

TEST(Team, DoesNotWaitForAProcessorThatOthersUse) {
  const int threads = at::get_num_threads();
  const int all = host().processors;
  const auto most = static_cast<int64_t>(2.0 * kWaitNs / unit_ns()); // two threads do half each
  at::set_num_threads(2);
  let_teams_sleep(true, 2, all - 1);
  EXPECT_TRUE(is_short_of_processors());
  EXPECT_EQ(count_ranges(most), 1);
  EXPECT_EQ(count_ranges(most + 1), 2);
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_TRUE(is_worth_no_wait(most * 2 / 3, 4)) << "of which the others would do three quarters";
  EXPECT_FALSE(is_worth_no_wait(most * 2 / 3 + 2, 4));
  let_teams_sleep(false, 2);
  let_teams_sleep(true, all, 0.1);
  EXPECT_FALSE(is_short_of_processors()) << "hardly any";
  let_teams_sleep(false, 2);
  EXPECT_EQ(count_ranges(1), 2);
  at::set_num_threads(threads);
}

double process_cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// What the process computes while its team has nothing to do, in milliseconds, for ten parallel regions.
double time_spun() {
  double spun = 0;
  for (int region = 0; region < 10; ++region) {
    std::atomic<int> parts{0};
    at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) { ++parts; });
    double before = process_cpu_ms();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    spun += process_cpu_ms() - before;
  }
  return spun;
}

// It comes and goes as often as the load does. The process ends with 0 if the team spins exactly when it may.
void let_team_sleep_and_spin(int threads) {
  at::set_num_threads(threads);
  bool good = true;
  for (int turn = 0; turn < 3; ++turn) {
    let_teams_sleep(true, threads);
    good &= teams_sleep();
    double asleep = time_spun();
    let_teams_sleep(true, threads); // says nothing new
    let_teams_sleep(false, threads);
    good &= !teams_sleep();
    good &= asleep < time_spun() / 2;
  }
  std::exit(good ? 0 : 1);
}

TEST(TeamDeathTest, SleepsWhileProcessorsAreWanted) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  if (threads < 2 || std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) {
    GTEST_SKIP() << "teams of one thread, or of a policy that the environment sets";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe"); // a process of its own, as the teams of other tests count
  EXPECT_EXIT(let_team_sleep_and_spin(threads), testing::ExitedWithCode(0), "");
}

} // namespace
} // namespace torch_xla::cpu
