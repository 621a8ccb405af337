// The executors' threads, which start queued runs in order and end them in that order, the waits for them, and fork.
#include "runtime/executor.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "core/errors.h"
#include "core/host_activity.h"
#include "core/metrics.h"
#include "core/process.h"
#include "core/threads.h"
#include "engine/engine.h"
#include "runtime/queue.h"
#include "runtime/wait.h"

namespace torch_xla {
namespace {

// Most runs of a device at once: it starts the next one while the end of the last is reported.
constexpr size_t kMaxStarted = 2;

// A program that took less than this is short: not worth a team of threads, and no interrupt need end it.
constexpr int64_t kShortNs = 100'000;

// After this many short programs in a row another thread takes over the processors, and the team of the device's thread ends: each change
// costs more than a short program.
constexpr int kShortsInARow = 16;

// After this many runs in a row with a read after them, of their results or of the next run's, the next one is expected to be read too.
constexpr int kNeededInARow = 4;

// A device's thread without runs for this long leaves the processors to others. Not at once: the threads of a new team often share a
// processor for the first milliseconds, until the system moves one. A decoder with 2 ms between its steps took 3 times as long without this
// delay.
constexpr auto kIdle = std::chrono::milliseconds(100);

// Longest wait for runs that should fail at once.
constexpr auto kSettleLimit = std::chrono::seconds(1);

// The caller holds the lock.
bool may_start_another(const Queue& q) {
  if (queues().stop || q.num_started == q.runs.size()) {
    return false;
  }
  return q.num_started == 0 || (q.num_started < kMaxStarted && q.runs[q.num_started].run.executable->is_asynchronous());
}

// Reports the end of the last run, if that was delayed until the next run leaves a processor. Device's thread only.
void tell(Queue& q) {
  if (std::exchange(q.tells, false)) {
    wait::changed().notify_all();
  }
}

// The caller holds the lock; it is released in between. References into a deque stay valid after a push.
void start_another(Queue& q, std::unique_lock<std::mutex>& lock) {
  QueuedRun& queued = q.runs[q.num_started++];
  lock.unlock();
  {
    memory_log::CallerScope scope(queued.caller);
    if (q.tells && queued.run.executable->leaves_processor()) {
      queued.run.options.tell = [&q] { tell(q); };
    } else {
      tell(q);
    }
    start_run(q, queued);
  }
  lock.lock();
}

void end_first(Queue& q, std::unique_lock<std::mutex>& lock) {
  QueuedRun& queued = q.runs.front();
  lock.unlock();
  {
    memory_log::CallerScope scope(queued.caller);
    end_run(q, queued);
    queued = QueuedRun(); // frees the run's members without the lock
  }
  lock.lock();
  q.runs.pop_front();
  --q.num_started;
  const bool is_callers = q.caller != std::thread::id();
  q.caller = {}; // before the lock is released: then another thread may take the next run
  if (!is_callers && may_start_another(q) && wait::num_waiting() > 0) {
    q.tells = true;
    return; // see RunOptions::tell
  }
  lock.unlock();
  wait::changed().notify_all(); // once for all outputs of the run: each wake-up takes a processor from the run's threads
  lock.lock();
}

// In an Executor::ShortRuns.
thread_local struct {
  int device = -1;
  bool needs_results = false;
} running_for;
thread_local bool owns_first = false; // this thread runs the device's first run

// Whether the calling thread is to run the program itself. The caller holds the lock.
bool is_callers(Queue& q, const Run& run) {
  const Executable& executable = *run.executable;
  const bool is_short = executable.usual_run_ns.load(std::memory_order_relaxed) < kShortNs && !executable.is_asynchronous();
  const bool last_was_needed = running_for.needs_results || wait::last_read().load(std::memory_order_relaxed) == q.last_run;
  q.num_needed = last_was_needed ? q.num_needed + 1 : 0;
  const bool needs_results = running_for.needs_results || q.num_needed >= kNeededInARow;
  const bool gains = running_for.device == q.device && (needs_results || executable.is_alone());
  q.num_short = is_short && gains ? q.num_short + 1 : 0;
  return q.num_short > (q.holds_processors ? kShortsInARow : 0) && q.runs.empty() && !run.waits_for_others;
}

void run_callers(Queue& q, std::unique_lock<std::mutex>& lock) {
  const host_activity::Pause pause; // it records nothing meanwhile
  start_another(q, lock);
  end_first(q, lock);
  if (!q.runs.empty()) {
    q.work.notify_one();
  }
}

// Waits until the device's thread has something to do. After a while without runs, or if another thread runs programs now, it leaves the
// processors to others.
void wait_for_work(Queue& q, std::unique_lock<std::mutex>& lock) {
  auto has_work = [&q] { return q.caller == std::thread::id() && (queues().stop || !q.runs.empty()); };
  if (!q.work.wait_for(lock, kIdle, [&] { return q.gives_way || has_work(); }) || q.gives_way) {
    q.holds_processors = q.gives_way = false;
    lock.unlock();
    engine().leave_processors();
    lock.lock();
  }
  q.work.wait(lock, has_work);
}

void thread_main(int device) {
  Queue& q = queue(device);
  std::unique_lock<std::mutex> lock(wait::mutex());
  for (;;) {
    wait_for_work(q, lock);
    if (may_start_another(q)) {
      q.holds_processors = true;
      start_another(q, lock);
      tell(q); // not done by a run that failed before its first step
    } else if (q.num_started > 0) {
      end_first(q, lock);
    } else {
      tell(q);
      break; // stopped
    }
  }
}

// The caller holds the lock.
void start_device_thread(int device) {
  if (queue(device).has_thread) {
    return;
  }
  start_thread(str("xla_executor_", device), [device] { thread_main(device); }).detach();
  queue(device).has_thread = true;
  if (!std::exchange(queues().has_exit_handler, true)) {
    on_exit(stop_at_exit, nullptr);
  }
}

// Waits a moment for the runs of the devices.
void settle_devices(const std::vector<int>& devices, std::unique_lock<std::mutex>& lock) {
  auto is_empty = [](int device) { return queue(device).runs.empty(); };
  wait::changed().wait_for(lock, kSettleLimit, [&] { return queues().stop || std::all_of(devices.begin(), devices.end(), is_empty); });
  for (int device : devices) {
    queue(device).was_cancelled = false;
  }
}

} // namespace

namespace wait {
bool is_news(const std::exception_ptr& error) {
  std::lock_guard<std::mutex> lock(mutex());
  return !find_devices([&](const Queue& q) { return q.first_error == error; }).empty();
}

void set_told(const std::exception_ptr& error) {
  std::lock_guard<std::mutex> lock(mutex());
  for (int device : find_devices([&](const Queue& q) { return q.first_error == error; })) {
    queue(device).first_error = nullptr;
  }
}

void cancel_runs() {
  Queues& all = queues();
  std::lock_guard<std::mutex> lock(mutex());
  all.cancel->store(true);
  all.cancel = std::make_shared<std::atomic<bool>>(false);
  for (Queue& q : all.of_device) {
    q.was_cancelled = q.was_cancelled || !q.runs.empty();
  }
}

} // namespace wait

Executor& Executor::get(int device) {
  static auto* executors = [] {
    process::note_use();
    auto* made = new std::vector<Executor>;
    for (int index = 0; index < kMaxDevices; ++index) {
      made->push_back(Executor(index));
    }
    return made;
  }();
  return (*executors)[static_cast<size_t>(device)];
}

Executor::ShortRuns::ShortRuns(int device, bool needs_results) : device_(device) {
  running_for = {device, needs_results};
}

Executor::ShortRuns::~ShortRuns() {
  running_for = {};
  if (!std::exchange(owns_first, false)) {
    return; // without the lock, which a forked child may not take
  }
  std::unique_lock<std::mutex> lock(wait::mutex());
  if (!queues().stop) {
    run_callers(queue(device_), lock);
  }
}

void Executor::start() {
  process::check();
  std::lock_guard<std::mutex> lock(wait::mutex());
  XLA_CHECK(!queues().stop, "the process is exiting");
  start_device_thread(device_);
}

uint64_t Executor::enqueue(Run run) {
  start();
  Queue& q = queue(device_);
  std::unique_lock<std::mutex> lock(wait::mutex());
  if (is_callers(q, run)) {
    q.caller = std::this_thread::get_id();
    owns_first = true;
    if (q.holds_processors) {
      q.gives_way = true;
      q.work.notify_one();
    }
  } else {
    lock.unlock();
    engine().leave_processors();
    lock.lock();
  }
  run.device = device_;
  run.options.cancelled = queues().cancel;
  run.options.number = q.last_run = ++queues().num_queued;
  for (const BufferRef& output : run.outputs) {
    if (output) {
      output->set_run(run.options.number);
    }
  }
  q.runs.push_back({std::move(run), metrics::now_ns(), memory_log::caller(device_)});
  if (q.caller == std::thread::id()) {
    q.work.notify_one();
  }
  return queues().num_queued;
}

void Executor::wait_for_room() {
  Queue& q = queue(device_);
  wait::until([&q] { return queues().stop || q.runs.size() <= kMaxQueued; }, /*needs_results=*/false);
}

void Executor::drain() {
  Queue& q = queue(device_);
  wait::until([&q] { return q.runs.empty() || queues().stop; });
  std::exception_ptr error;
  {
    std::lock_guard<std::mutex> lock(wait::mutex());
    error = std::exchange(q.first_error, nullptr);
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

void Executor::check_news() {
  {
    std::lock_guard<std::mutex> lock(wait::mutex());
    if (!queue(device_).first_error) {
      return;
    }
  }
  drain();
}

std::vector<int> Executor::settle(const std::exception_ptr& told) {
  if (process::in_forked_child()) {
    return {};
  }
  std::unique_lock<std::mutex> lock(wait::mutex());
  std::vector<int> devices = find_devices([this](const Queue& q) { return q.was_cancelled || q.device == device_; });
  settle_devices(devices, lock);
  for (int device : devices) {
    if (queue(device).first_error == told) {
      queue(device).first_error = nullptr;
    }
  }
  return devices;
}

bool Executor::finish(std::chrono::milliseconds limit) {
  if (process::in_forked_child()) {
    return true;
  }
  auto busy = [] { return find_devices([](const Queue& q) { return !q.runs.empty(); }); };
  auto deadline = std::chrono::steady_clock::now() + limit;
  wait::until([&] { return queues().gave_up || busy().empty() || std::chrono::steady_clock::now() >= deadline; });
  wait::cancel_runs();
  std::unique_lock<std::mutex> lock(wait::mutex());
  settle_devices(busy(), lock);
  queues().gave_up = !busy().empty();
  return !queues().gave_up;
}

bool Executor::idle() const {
  if (process::in_forked_child()) {
    return true; // no thread, and the lock may be held for ever
  }
  std::lock_guard<std::mutex> lock(wait::mutex());
  return queue(device_).runs.empty();
}

} // namespace torch_xla
