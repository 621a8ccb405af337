// The executor's thread: starts queued runs in order, ends them in that order by filling or failing their outputs, and survives fork and
// exit of the process.
#include "runtime/executor.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "core/errors.h"
#include "core/metrics.h"
#include "core/process.h"
#include "runtime/wait.h"

namespace torch_xla {
namespace {

// Runs that a device works on at once: it starts on the next one while the end of the last is told.
constexpr size_t kMaxStarted = 2;

struct QueuedRun {
  Run run;
  // Set when the run is started, by the executor's thread, which alone reads them.
  int64_t start_ns = 0;
  std::function<void()> wait_for_end = {}; // empty: it has ended
};

// All guarded by wait::mutex(); never destroyed.
struct Queue {
  std::deque<QueuedRun> runs;
  size_t num_started = 0; // of the first ones
  std::exception_ptr first_error;
  std::condition_variable work; // the thread waits here
  bool stop = false;
  bool has_thread = false;
};

Queue& queue() {
  static auto* q = new Queue;
  return *q;
}

// An error that has the user's line; runs that take a failed output pass it on as it is.
class DescribedError : public UserError {
 public:
  DescribedError(const Run& run, const UserError& e, int32_t location)
      : UserError(e.kind(), run.describe ? str(e.what(), run.describe(location)) : e.what()) {}
};

// The error in flight, with the user's line.
std::exception_ptr describe_error(const Run& run) {
  try {
    throw;
  } catch (const DescribedError&) {
    return std::current_exception();
  } catch (const StepError& e) {
    return std::make_exception_ptr(DescribedError(run, e, e.location()));
  } catch (const UserError& e) {
    return std::make_exception_ptr(DescribedError(run, e, -1));
  } catch (const std::bad_alloc&) {
    return std::make_exception_ptr(DescribedError(run, UserError(ErrorKind::OutOfMemory, "out of memory"), -1));
  } catch (...) {
    return std::current_exception();
  }
}

// Donation takes the payload out of the buffer, so that the run holds the only reference.
RunArgs collect_args(Run& run) {
  RunArgs args;
  args.inputs.reserve(run.inputs.size());
  for (auto& input : run.inputs) {
    input->get(); // an input that failed fails the run before any memory is taken
  }
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    bool donate = i < run.donated.size() && run.donated[i];
    args.inputs.push_back(donate ? run.inputs[i]->take() : run.inputs[i]->get());
  }
  args.donated = std::move(run.donated);
  args.donated.resize(run.inputs.size());
  run.inputs.clear(); // the program drops each input at its last use
  args.scalars = std::move(run.scalars);
  args.options = run.options;
  return args;
}

// The outputs fail last, so that a wait for one of them finds the error to be reported.
void fail(Run& run, const std::exception_ptr& error) {
  {
    std::lock_guard<std::mutex> lock(wait::mutex());
    if (!queue().first_error) {
      queue().first_error = error;
    }
  }
  for (auto& output : run.outputs) {
    if (output) {
      output->set_failed(error);
    }
  }
  run.outputs.clear();
}

void start(QueuedRun& queued) {
  Run& run = queued.run;
  queued.start_ns = metrics::now_ns();
  try {
    RunArgs args = collect_args(run);
    queued.wait_for_end = run.executable->start(args);
    XLA_ASSERT(args.outputs.size() == run.outputs.size(), "outputs of a run");
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      if (run.outputs[i]) {
        run.outputs[i]->set_running(std::move(args.outputs[i]));
      }
    }
  } catch (...) {
    fail(run, describe_error(run));
  }
}

void end(QueuedRun& queued) {
  static metrics::Metric time("ExecuteTime", metrics::Unit::kTime);
  Run& run = queued.run;
  try {
    if (queued.wait_for_end) {
      queued.wait_for_end();
    }
    for (auto& output : run.outputs) {
      if (output) {
        output->set_ready();
      }
    }
  } catch (...) {
    fail(run, describe_error(run));
  }
  time.add(static_cast<double>(metrics::now_ns() - queued.start_ns));
}

// The caller holds the lock.
bool may_start_another(const Queue& q) {
  if (q.stop || q.num_started == q.runs.size()) {
    return false;
  }
  return q.num_started == 0 || (q.num_started < kMaxStarted && q.runs[q.num_started].run.executable->is_asynchronous());
}

// The caller holds the lock, which is given up in between. References into a deque stay valid while others are pushed.
void start_another(Queue& q, std::unique_lock<std::mutex>& lock) {
  QueuedRun& queued = q.runs[q.num_started++];
  lock.unlock();
  start(queued);
  lock.lock();
}

void end_first(Queue& q, std::unique_lock<std::mutex>& lock) {
  QueuedRun& queued = q.runs.front();
  lock.unlock();
  end(queued);
  queued = QueuedRun(); // frees what the run held without the lock
  lock.lock();
  q.runs.pop_front();
  --q.num_started;
  lock.unlock();
  wait::changed().notify_all(); // once for all outputs of the run: each waking takes a processor from the run's threads
  lock.lock();
}

void thread_main() {
  pthread_setname_np(pthread_self(), "xla_executor");
  Queue& q = queue();
  std::unique_lock<std::mutex> lock(wait::mutex());
  for (;;) {
    q.work.wait(lock, [&] { return q.stop || !q.runs.empty(); });
    if (may_start_another(q)) {
      start_another(q, lock);
    } else if (q.num_started > 0) {
      end_first(q, lock);
    } else {
      break; // stopped
    }
  }
}

// At exit the runs under way are left to end and the rest is dropped, so that static destructors find no thread of ours at work.
void stop_at_exit() {
  if (process::in_forked_child()) {
    return;
  }
  Queue& q = queue();
  std::unique_lock<std::mutex> lock(wait::mutex());
  q.stop = true;
  q.work.notify_all();
  wait::changed().wait(lock, [&] { return q.num_started == 0; });
}

void start_thread() {
  Queue& q = queue();
  if (q.has_thread) {
    return;
  }
  q.has_thread = true;
  std::thread(thread_main).detach();
  std::atexit(stop_at_exit);
}

} // namespace

namespace wait {
void set_reported(const std::exception_ptr& error) {
  std::lock_guard<std::mutex> lock(mutex());
  if (queue().first_error == error) {
    queue().first_error = nullptr;
  }
}

} // namespace wait

Executor& Executor::get() {
  static Executor* executor = [] {
    process::note_use();
    return new Executor;
  }();
  return *executor;
}

void Executor::enqueue(Run run) {
  process::check();
  Queue& q = queue();
  std::lock_guard<std::mutex> lock(wait::mutex());
  XLA_CHECK(!q.stop, "the process is exiting");
  start_thread();
  q.runs.push_back({std::move(run)});
  q.work.notify_one();
}

void Executor::wait_for_room() {
  Queue& q = queue();
  wait::until([&q] { return q.stop || q.runs.size() <= kMaxQueued; });
}

void Executor::drain() {
  Queue& q = queue();
  wait::until([&q] { return q.runs.empty() || q.stop; });
  std::exception_ptr error;
  {
    std::lock_guard<std::mutex> lock(wait::mutex());
    error = std::exchange(q.first_error, nullptr);
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

bool Executor::idle() const {
  if (process::in_forked_child()) {
    return true; // no thread, and the lock may be held for ever
  }
  std::lock_guard<std::mutex> lock(wait::mutex());
  return queue().runs.empty();
}

} // namespace torch_xla
