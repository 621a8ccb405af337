// The executor's thread: takes runs from the queue, fills or fails their outputs, and survives fork and exit of the process.
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
#include "runtime/wait.h"

namespace torch_xla {
namespace {

std::atomic<bool> forked{false};

// All guarded by wait::mutex(); never destroyed.
struct Queue {
  std::deque<Run> runs; // the first one may be running
  std::exception_ptr first_error;
  std::condition_variable work; // the thread waits here
  bool running = false;
  bool stop = false;
  bool started = false;
};

Queue& queue() {
  static auto* q = new Queue;
  return *q;
}

// The error in flight, with the user's line where the step is known.
std::exception_ptr describe_error(const Run& run) {
  try {
    throw;
  } catch (const StepError& e) {
    std::string line = run.describe ? run.describe(e.location()) : std::string();
    return std::make_exception_ptr(UserError(e.kind(), line.empty() ? e.what() : str(e.what(), "\n", line)));
  } catch (const std::bad_alloc&) {
    return std::make_exception_ptr(UserError(ErrorKind::OutOfMemory, "out of memory"));
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

void fail_outputs(Run& run, const std::exception_ptr& error) {
  for (auto& output : run.outputs) {
    if (output) {
      output->set_failed(error);
    }
  }
}

void execute(Run& run) {
  try {
    RunArgs args = collect_args(run);
    {
      static metrics::Metric time("ExecuteTime", metrics::Unit::kTime);
      metrics::Timed timed(time);
      run.executable->run(args);
    }
    XLA_ASSERT(args.outputs.size() == run.outputs.size(), "outputs of a run");
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      if (run.outputs[i]) {
        run.outputs[i]->set_ready(std::move(args.outputs[i]));
      }
    }
  } catch (...) {
    std::exception_ptr error = describe_error(run);
    {
      std::lock_guard<std::mutex> lock(wait::mutex());
      if (!queue().first_error) {
        queue().first_error = error;
      }
    }
    fail_outputs(run, error); // after, so that a wait for one of them finds the error to be reported
  }
}

void thread_main() {
  pthread_setname_np(pthread_self(), "xla_executor");
  Queue& q = queue();
  std::unique_lock<std::mutex> lock(wait::mutex());
  for (;;) {
    q.work.wait(lock, [&] { return q.stop || !q.runs.empty(); });
    if (q.stop) {
      break;
    }
    q.running = true;
    Run& run = q.runs.front(); // references into a deque stay valid while others are pushed
    lock.unlock();
    execute(run);
    run = Run(); // frees what the run held without the lock
    lock.lock();
    q.runs.pop_front();
    q.running = false;
    lock.unlock();
    wait::changed().notify_all(); // once for all outputs of the run: each waking takes a processor from the run's threads
    lock.lock();
  }
}

// At exit the run in progress is left to end and the rest is dropped, so that static destructors find no thread of ours at work.
void stop_at_exit() {
  if (forked) {
    return;
  }
  Queue& q = queue();
  std::unique_lock<std::mutex> lock(wait::mutex());
  q.stop = true;
  q.work.notify_all();
  wait::changed().wait(lock, [&] { return !q.running; });
}

void start_thread() {
  Queue& q = queue();
  if (q.started) {
    return;
  }
  q.started = true;
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

bool in_forked_child() {
  return forked.load(std::memory_order_relaxed);
}

} // namespace wait

Executor& Executor::get() {
  static Executor* executor = [] {
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return new Executor;
  }();
  return *executor;
}

void Executor::enqueue(Run run) {
  wait::check_process();
  Queue& q = queue();
  std::lock_guard<std::mutex> lock(wait::mutex());
  XLA_CHECK(!q.stop, "the process is exiting");
  start_thread();
  q.runs.push_back(std::move(run));
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
  if (forked) {
    return true; // no thread, and the lock may be held for ever
  }
  std::lock_guard<std::mutex> lock(wait::mutex());
  return queue().runs.empty();
}

} // namespace torch_xla
