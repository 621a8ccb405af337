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

// The caller holds the lock.
bool may_start_another(const Queue& q) {
  if (queues().stop || q.num_started == q.runs.size()) {
    return false;
  }
  return q.num_started == 0 || (q.num_started < kMaxStarted && q.runs[q.num_started]->executable->is_asynchronous());
}

// Reports the end of the last run, if that was delayed until the next run leaves a processor. Device's thread only.
void tell(Queue& q) {
  if (std::exchange(q.tells, false)) {
    wait::changed().notify_all();
  }
}

// The thread that runs it, without the lock.
void start(Queue& q, Run& run) {
  memory_log::CallerScope scope(run.caller);
  if (q.tells && run.executable->leaves_processor()) {
    run.args.options.tell = [&q] { tell(q); };
  } else {
    tell(q);
  }
  start_run(q, run);
}

// Gives up what the run refers to. Returns the time of its end. The thread that runs it, without the lock.
int64_t end(Queue& q, Run& run) {
  memory_log::CallerScope scope(run.caller);
  const int64_t end_ns = end_run(q, run);
  run.clear();
  return end_ns;
}

// Removes the first run, which has ended. The caller holds the lock.
void pop_first(Queue& q) {
  delete q.spare.exchange(q.runs.front().release(), std::memory_order_acq_rel);
  q.runs.pop_front();
  q.num_runs.store(q.runs.size(), std::memory_order_relaxed);
  --q.num_started;
  q.caller = {}; // before the lock is released: then another thread may take the next run
}

// The caller holds the lock; it is released in between.
void start_another(Queue& q, std::unique_lock<std::mutex>& lock) {
  Run& run = *q.runs[q.num_started++];
  lock.unlock();
  start(q, run);
  lock.lock();
}

void end_first(Queue& q, std::unique_lock<std::mutex>& lock) {
  Run& run = *q.runs.front();
  lock.unlock();
  end(q, run);
  lock.lock();
  pop_first(q);
  if (may_start_another(q) && wait::num_waiting() > 0) {
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
thread_local Run* own_run = nullptr; // the device's first run, which this thread runs

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

void run_callers(Queue& q, Run& run) {
  host_activity::Pause pause(/*needs_results=*/true, run.queued_ns); // it records nothing meanwhile
  start(q, run);
  pause.set_end(end(q, run));
  {
    std::lock_guard<std::mutex> lock(wait::mutex());
    pop_first(q);
    if (!q.runs.empty()) {
      q.work.notify_one();
    }
  }
  wait::changed().notify_all();
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
  if (queue(device).is_started) {
    return;
  }
  start_thread(str("xla_executor_", device), [device] { thread_main(device); }).detach();
  queue(device).is_started = true;
  if (!std::exchange(queues().has_exit_handler, true)) {
    on_exit(stop_at_exit, nullptr);
  }
}

} // namespace

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
  if (own_run) {
    run_callers(queue(device_), *std::exchange(own_run, nullptr));
  }
}

void Executor::start() {
  process::check();
  if (queue(device_).is_started.load(std::memory_order_acquire)) {
    return;
  }
  std::lock_guard<std::mutex> lock(wait::mutex());
  XLA_CHECK(!queues().stop, "the process is exiting");
  start_device_thread(device_);
}

std::unique_ptr<Run> Executor::new_run() {
  Run* spare = queue(device_).spare.exchange(nullptr, std::memory_order_acq_rel);
  return spare ? std::unique_ptr<Run>(spare) : std::make_unique<Run>();
}

uint64_t Executor::enqueue(std::unique_ptr<Run> given) {
  start();
  Queue& q = queue(device_);
  Run& run = *given;
  run.device = device_;
  run.queued_ns = metrics::now_ns();
  run.caller = memory_log::caller(device_);
  std::unique_lock<std::mutex> lock(wait::mutex());
  const bool runs_here = is_callers(q, run);
  if (!runs_here) {
    lock.unlock();
    engine().leave_processors();
    lock.lock();
  }
  run.args.options.first_kept = &queues().first_kept;
  run.args.options.number = q.last_run = ++queues().num_queued;
  for (const BufferRef& output : run.outputs) {
    if (output) {
      output->set_run(q.last_run);
    }
  }
  q.runs.push_back(std::move(given));
  q.num_runs.store(q.runs.size(), std::memory_order_relaxed);
  if (runs_here) {
    q.caller = std::this_thread::get_id();
    q.num_started = 1;
    own_run = &run;
    q.gives_way = q.holds_processors;
  }
  if (runs_here ? q.gives_way : q.caller == std::thread::id()) {
    q.work.notify_one();
  }
  return q.last_run;
}

void Executor::wait_for_room() {
  Queue& q = queue(device_);
  if (q.num_runs.load(std::memory_order_relaxed) > kMaxQueued) {
    wait::until([&q] { return queues().stop || q.runs.size() <= kMaxQueued; }, /*needs_results=*/false);
  }
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

bool Executor::idle() const {
  if (process::in_forked_child()) {
    return true; // no thread, and the lock may be held for ever
  }
  std::lock_guard<std::mutex> lock(wait::mutex());
  return queue(device_).runs.empty();
}

} // namespace torch_xla
