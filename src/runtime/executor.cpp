// The executor's thread: starts queued runs in order, ends them in that order by filling or failing their outputs, and survives fork and
// exit of the process.
#include "runtime/executor.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
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

// How long waits last that do not depend on the device: for runs that should fail at once, and at exit.
constexpr auto kSettleLimit = std::chrono::seconds(1);
constexpr auto kExitLimit = std::chrono::seconds(60);

using CancelFlag = std::shared_ptr<std::atomic<bool>>;

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
  std::exception_ptr first_error; // that nobody has been told
  CancelFlag cancel = std::make_shared<std::atomic<bool>>(false); // of the runs that are queued from now on
  std::condition_variable work; // the thread waits here
  bool stop = false;
  bool has_thread = false;
  bool gave_up = false; // a wait for the last runs of the process was too long
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
void collect_args(Run& run, RunArgs& args) {
  args.inputs.reserve(run.inputs.size());
  for (auto& input : run.inputs) {
    input->get(); // an input that failed fails the run before any memory is taken
  }
  args.donated = std::move(run.donated);
  args.donated.resize(run.inputs.size());
  args.restored = std::move(run.restored);
  args.restored.resize(run.inputs.size());
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    args.inputs.push_back(args.donated[i] ? run.inputs[i]->take() : run.inputs[i]->get());
    if (!args.restored[i]) {
      run.inputs[i].reset(); // the program drops each input at its last use
    }
  }
  args.scalars = std::move(run.scalars);
  args.options = run.options;
}

// What the failed run has not written over.
void give_back(Run& run, RunArgs& args) {
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    if (args.restored[i] && args.inputs[i]) {
      run.inputs[i]->give_back(std::move(args.inputs[i]));
    }
  }
}

// What tensors held before a run that has ended well is of no use any more.
void forget_replaced(Run& run) {
  for (const PreviousRef& previous : run.replaced) {
    previous->buffer.reset();
    previous->before.reset();
  }
}

// The outputs fail last, so that a wait for one of them finds the error that is to be told. Who cancels a run knows why it fails.
void fail(Run& run, const std::exception_ptr& error) {
  if (!run.options.is_cancelled()) {
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
  run.replaced.clear(); // the tensors keep it
}

void start(QueuedRun& queued) {
  Run& run = queued.run;
  queued.start_ns = metrics::now_ns();
  RunArgs args;
  try {
    // A run without results is a mark in the queue, which is reached all the same.
    XLA_CHECK(run.outputs.empty() || !run.options.is_cancelled(), kCancelled);
    collect_args(run, args);
    queued.wait_for_end = run.executable->start(args);
    XLA_ASSERT(args.outputs.size() == run.outputs.size(), "outputs of a run");
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      if (run.outputs[i]) {
        run.outputs[i]->set_running(std::move(args.outputs[i]));
      }
    }
    run.inputs.clear();
  } catch (...) {
    give_back(run, args);
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
    forget_replaced(run);
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

void write_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "Exception ignored in a program of the XLA device that nobody waited for:\n%s\n", e.what());
  } catch (...) {
    std::fprintf(stderr, "Exception ignored in a program of the XLA device that nobody waited for\n");
  }
}

// At exit the runs under way are left to end and the rest is dropped, so that static destructors find no thread of ours at work. A device
// that hangs keeps the process for a while only: then it ends without destructors.
void stop_at_exit(int status, void* /*unused*/) {
  if (process::in_forked_child()) {
    return;
  }
  Queue& q = queue();
  std::unique_lock<std::mutex> lock(wait::mutex());
  q.stop = true;
  q.work.notify_all();
  bool ended = wait::changed().wait_for(lock, q.gave_up ? std::chrono::seconds(0) : kExitLimit, [&] { return q.num_started == 0; });
  std::exception_ptr error = std::exchange(q.first_error, nullptr);
  lock.unlock();
  if (error) {
    write_error(error);
  }
  if (!ended) {
    std::fprintf(stderr, "torch_xla: the device has not ended its programs; the process ends without them\n");
    std::fflush(nullptr);
    _exit(status ? status : 1);
  }
  if (error && status == 0) {
    std::exit(1); // runs the handlers that are left
  }
}

void start_thread() {
  Queue& q = queue();
  if (q.has_thread) {
    return;
  }
  q.has_thread = true;
  std::thread(thread_main).detach();
  on_exit(stop_at_exit, nullptr);
}

} // namespace

namespace wait {
bool is_news(const std::exception_ptr& error) {
  std::lock_guard<std::mutex> lock(mutex());
  return queue().first_error == error;
}

void set_told(const std::exception_ptr& error) {
  std::lock_guard<std::mutex> lock(mutex());
  if (queue().first_error == error) {
    queue().first_error = nullptr;
  }
}

void cancel_runs() {
  Queue& q = queue();
  std::lock_guard<std::mutex> lock(mutex());
  q.cancel->store(true);
  q.cancel = std::make_shared<std::atomic<bool>>(false);
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
  run.options.cancelled = q.cancel;
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

void Executor::check_news() {
  {
    std::lock_guard<std::mutex> lock(wait::mutex());
    if (!queue().first_error) {
      return;
    }
  }
  drain();
}

void Executor::settle(const std::exception_ptr& told) {
  if (process::in_forked_child()) {
    return;
  }
  Queue& q = queue();
  std::unique_lock<std::mutex> lock(wait::mutex());
  wait::changed().wait_for(lock, kSettleLimit, [&q] { return q.runs.empty() || q.stop; });
  if (q.first_error == told) {
    q.first_error = nullptr;
  }
}

bool Executor::finish(std::chrono::milliseconds limit) {
  if (process::in_forked_child()) {
    return true;
  }
  Queue& q = queue();
  auto deadline = std::chrono::steady_clock::now() + limit;
  wait::until([&] { return q.runs.empty() || std::chrono::steady_clock::now() >= deadline; });
  if (!idle()) {
    wait::cancel_runs();
    settle(nullptr);
  }
  std::lock_guard<std::mutex> lock(wait::mutex());
  q.gave_up = !q.runs.empty();
  return !q.gave_up;
}

bool Executor::idle() const {
  if (process::in_forked_child()) {
    return true; // no thread, and the lock may be held for ever
  }
  std::lock_guard<std::mutex> lock(wait::mutex());
  return queue().runs.empty();
}

} // namespace torch_xla
