// Sets libgomp's numbers of threads for a run, and makes its threads sleep while other processes want the processors.
#include "engine/cpu/threads/team.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "core/errors.h"
#include "core/metrics.h"
#include "core/threads.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/host.h"
#include "engine/cpu/threads/processors.h"

// MKL's function: sets the calling thread's own number (0: the process's) and returns the old one. PyTorch's builds for other processors
// lack it.
extern "C" int MKL_Set_Num_Threads_Local(int threads) __attribute__((weak));

namespace torch_xla::cpu {
namespace {

int set_mkl_threads(int threads) {
  return MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(threads) : 0;
}

// Between two measurements. The system counts processor times in steps of 10 ms.
constexpr int64_t kLookNs = 200'000'000;

// A pause between two runs. Other processes may have had the processors only because no run wanted them, so a busy result is measured again
// after a moment.
constexpr int64_t kIdleNs = kLookNs / 4;
constexpr int64_t kSecondLookNs = kLookNs / 2;

// The number of processors that others must keep busy before teams sleep, and below which they spin again. On two quiet processors an MLP's
// training step takes 1.4 times as long with sleep, ResNet-18's 1.06 times; beside one busy process they take 18 and 20 times as long
// without it.
constexpr double kBusy = 0.4;
constexpr double kQuiet = 0.2;

// libgomp's threads spin for milliseconds before they sleep, but for a moment only while all teams together have more threads than there
// are processors. So a team that does nothing makes all others sleep: its threads are asleep themselves.
class IdleTeam {
 public:
  // A team of this size. Throws UserError if the system has no thread left.
  explicit IdleTeam(int threads) {
    start_thread("xla_idle_team", [state = state_, threads] { stay(state, threads); }).detach();
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->is_there; });
  }
  IdleTeam(const IdleTeam&) = delete;

  ~IdleTeam() {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->ends = true;
    state_->changed.notify_all();
    state_->changed.wait(lock, [this] { return !state_->is_there; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_there = false;
    bool ends = false;
    std::atomic<int> size{0};
  };

  static void stay(const std::shared_ptr<State>& state, int threads) {
#pragma omp parallel num_threads(threads)
    {
      state->size.fetch_add(1); // else the compiler drops the empty region
    }
    std::unique_lock<std::mutex> lock(state->mutex);
    state->is_there = true;
    state->changed.notify_all();
    state->changed.wait(lock, [&state] { return state->ends; });
    end_team();
    state->is_there = false;
    state->changed.notify_all();
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// One for the process; never destroyed.
struct Waiting {
  std::mutex mutex; // held during a measurement
  ForeignLoad load;
  std::unique_ptr<IdleTeam> idle_team;
  bool looks_again = false; // the last result must be confirmed
  std::atomic<int64_t> next_look_ns{0};
  std::atomic<int64_t> last_run_ns{0};
  std::atomic<bool> was_idle{false}; // since the last look
  std::atomic<bool> sleeps{false};
  std::atomic<bool> is_short{false};
};

Waiting& waiting() {
  static auto* instance = new Waiting;
  return *instance;
}

// The caller holds the lock.
void set_sleep(Waiting& w, bool sleep, int threads, double others) {
  w.is_short = sleep && host().processors - others < threads - kQuiet;
  if (sleep == w.sleeps) {
    return;
  }
  if (sleep) {
    static metrics::Counter counter("BusyProcessors");
    counter.add();
    // One thread more than processors, together with the run's team; a run with fewer threads than processors needs a larger idle team.
    w.idle_team = std::make_unique<IdleTeam>(std::max(2, omp_get_num_procs() - threads + 2));
  } else {
    w.idle_team.reset();
  }
  w.sleeps = sleep;
}

void look_sometimes(int threads) {
  Waiting& w = waiting();
  int64_t now = metrics::now_ns();
  const int64_t last_run_ns = w.last_run_ns.load(std::memory_order_relaxed);
  if (last_run_ns != 0 && now - last_run_ns > kIdleNs) {
    w.was_idle = true;
  }
  w.last_run_ns.store(now, std::memory_order_relaxed);
  if (now < w.next_look_ns.load(std::memory_order_relaxed)) {
    return;
  }
  std::unique_lock<std::mutex> lock(w.mutex, std::try_to_lock);
  if (!lock) {
    return;
  }
  std::optional<double> others = w.load.look();
  const int spare = std::max(0, host().processors - threads); // processors that others may use without loss
  const bool busy = others && *others - spare > (w.sleeps ? kQuiet : kBusy);
  w.looks_again = w.was_idle.exchange(false) && busy && !w.looks_again;
  w.next_look_ns = now + (w.looks_again ? kSecondLookNs : kLookNs);
  if (w.looks_again) {
    return;
  }
  try {
    set_sleep(w, busy, threads, others.value_or(0));
  } catch (const UserError&) { // no thread can be started: the run works without it
  }
}

} // namespace

OneThread::OneThread(bool is_wanted) {
  if (is_wanted) {
    threads_ = at::get_num_threads(); // first, as a thread's first call sets both numbers
    mkl_threads_ = set_mkl_threads(1);
    omp_set_num_threads(1);
  }
}
OneThread::~OneThread() {
  if (threads_ > 0) {
    omp_set_num_threads(threads_);
    set_mkl_threads(mkl_threads_);
  }
}

void use_team(int threads) {
  thread_local const int own_choice = at::get_num_threads();
  thread_local int now = own_choice;
  const int wanted = std::min(threads > 0 ? threads : own_choice, host().processors);
  if (wanted != now) {
    at::set_num_threads(wanted);
    now = wanted;
  }
  if (wanted > 1) {
    look_sometimes(wanted);
  }
}

void watch_processors() {
  std::lock_guard<std::mutex> lock(waiting().mutex);
  waiting().load.look();
}

bool is_short_of_processors() {
  return waiting().is_short.load(std::memory_order_relaxed);
}

bool is_worth_no_wait(int64_t worth, int threads) {
  return is_short_of_processors() && cost_of_leaving(worth, threads, 1) <= kWaitNs;
}

bool takes_one_thread(int64_t worth) {
  return is_beside_recorder() || is_worth_no_wait(worth, omp_get_max_threads());
}

bool teams_sleep() {
  return waiting().sleeps;
}

void let_teams_sleep(bool sleep, int threads, double others) {
  std::lock_guard<std::mutex> lock(waiting().mutex);
  set_sleep(waiting(), sleep, threads, others);
}

} // namespace torch_xla::cpu
