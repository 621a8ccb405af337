// One run from its start to its end: arguments, outputs, and buffers that a failed run gives back.
#include "runtime/queue.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/errors.h"
#include "core/metrics.h"
#include "core/observer.h"
#include "runtime/wait.h"

namespace torch_xla {
namespace {

// An error with the user's line; runs with a failed input pass it on unchanged.
class DescribedError : public UserError {
 public:
  DescribedError(const Run& run, const UserError& e, int32_t location)
      : UserError(e.kind(), run.describe ? str(e.what(), run.describe(run.lines, location)) : e.what()) {}
};

// The error with the user's line.
std::exception_ptr describe(const Run& run, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
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
void collect_args(Run& run) {
  RunArgs& args = run.args;
  args.inputs.reserve(run.inputs.size());
  for (auto& input : run.inputs) {
    input->get(); // an input that failed fails the run before any memory is taken
  }
  args.donated.resize(run.inputs.size());
  args.restored.resize(run.inputs.size());
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    args.inputs.push_back(args.donated[i] ? run.inputs[i]->take() : run.inputs[i]->get());
    if (!args.restored[i] && !run.recorded) {
      run.inputs[i].reset(); // the program drops each input at its last use
    }
  }
  args.options.lines = run.lines;
}

// Gives back buffers that the failed run has not overwritten.
void give_back(Run& run) {
  RunArgs& args = run.args;
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    if (args.restored[i] && args.inputs[i]) {
      run.inputs[i]->give_back(std::move(args.inputs[i]));
    }
  }
}

// After a successful run the old values of tensors are not needed any more.
void forget_replaced(Run& run) {
  for (const PreviousRef& previous : run.replaced) {
    previous->buffer = {};
    previous->before.reset();
  }
}

// The outputs fail last, so that a wait for one of them finds the error to raise. The thread that cancels a run knows why it fails.
void fail(Queue& q, Run& run, const std::exception_ptr& error) {
  if (!run.args.options.is_cancelled()) {
    std::lock_guard<std::mutex> lock(wait::mutex());
    if (!q.first_error) {
      q.first_error = error;
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

// One slow run, as others had the processor, does not make a program long, unless it took so long that an interrupt must be able to end the
// next.
void note_run(Executable& executable, int64_t ns) {
  constexpr int64_t kLeastNs = 10'000;
  constexpr int64_t kSurelyLongNs = 30'000'000;
  const int64_t usual = std::max(executable.usual_run_ns.load(std::memory_order_relaxed), kLeastNs);
  const bool is_news = usual == INT64_MAX || ns > kSurelyLongNs;
  executable.usual_run_ns.store(is_news ? ns : std::min(ns, usual + usual / 4), std::memory_order_relaxed);
}

void report(observer::Phase phase, const Queue& q, const Run& run, int64_t start_ns, int64_t end_ns) {
  observer::report(
      {.phase = phase, .name = run.operation, .start_ns = start_ns, .end_ns = end_ns, .device = q.device, .run = run.args.options.number});
}

} // namespace

Queues::Queues() {
  for (int device = 0; device < kMaxDevices; ++device) {
    of_device[static_cast<size_t>(device)].device = device;
  }
}

Queues& queues() {
  static auto* all = new Queues;
  return *all;
}

void Run::clear() {
  operation = "";
  executable.reset();
  inputs.clear();
  replaced.clear();
  recorded.reset();
  args.donated.clear();
  args.restored.clear();
  args.scalars.clear();
  args.options = {};
  waits_for_others = false;
  outputs.clear();
  lines.clear();
  describe = nullptr;
  caller = {};
  wait_for_end = {};
}

void start_run(Queue& q, Run& run) {
  run.start_ns = metrics::now_ns();
  report(observer::Phase::kQueue, q, run, run.queued_ns, run.start_ns);
  try {
    // A run without results is a mark in the queue; it is reached also after a cancel.
    XLA_CHECK(run.outputs.empty() || !run.args.options.is_cancelled(), kCancelled);
    collect_args(run);
    run.wait_for_end = run.executable->start(run.args);
    XLA_ASSERT(run.args.outputs.size() == run.outputs.size(), "outputs of a run");
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      if (run.outputs[i]) {
        run.outputs[i]->set_running(std::move(run.args.outputs[i]));
      }
    }
    run.inputs.clear();
  } catch (...) {
    give_back(run);
    fail(q, run, describe(run, recover(run, std::current_exception())));
  }
  run.args.inputs.clear();
  run.args.outputs.clear();
}

int64_t end_run(Queue& q, Run& run) {
  try {
    if (run.wait_for_end) {
      run.wait_for_end();
    }
    forget_replaced(run);
    for (auto& output : run.outputs) {
      if (output) {
        output->set_ready();
      }
    }
  } catch (...) {
    fail(q, run, describe(run, std::current_exception()));
  }
  const int64_t end_ns = metrics::now_ns();
  note_run(*run.executable, end_ns - run.start_ns);
  report(observer::Phase::kRun, q, run, run.start_ns, end_ns);
  return end_ns;
}

} // namespace torch_xla
