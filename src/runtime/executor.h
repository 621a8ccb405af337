// Executor: one thread for each device that runs its queued programs in order, while the user's threads go on recording.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/memory_log.h"
#include "engine/engine.h"
#include "runtime/buffer.h"
#include "runtime/recovery.h"

namespace torch_xla {

// A run of a program, made by Executor::new_run() and handed over by enqueue().
struct Run {
  const char* operation = ""; // in eager mode the name of its only operation
  std::shared_ptr<Executable> executable;
  std::vector<BufferRef> inputs;
  std::vector<PreviousRef> replaced; // emptied if the run ends well
  RecordedRef recorded; // set if the run may fail for the values of its inputs: then all donated inputs are restored; may be null
  // Its maker sets the numbers and threads; which inputs are donated, by the buffers' owners; and which of these are also in `replaced`:
  // given back if the run fails. The run sets all else.
  RunArgs args;
  int device = 0; // set by enqueue()
  bool waits_for_others = false; // a collective waits for other replicas
  std::vector<BufferRef> outputs; // parallel to Graph::outputs; null: the value is not used
  // Ids of the user's lines, by Node::location of the lowered graph.
  std::vector<int64_t> lines;
  // The text with the user's line to add to the error of a node (an index into `lines`) or of the whole run (-1). May be null.
  std::string (*describe)(std::span<const int64_t> lines, int32_t node) = nullptr;

  // The queue's.
  int64_t queued_ns = 0;
  memory_log::Caller caller = {};
  int64_t start_ns = 0; // only for the thread that runs it, as
  std::function<void()> wait_for_end = {}; // empty: it has ended

  // Gives up all that it refers to, and keeps the memory of its lists for another run.
  void clear();
};

class Executor {
 public:
  // wait_for_room() returns when no more than this many runs are queued or running.
  static constexpr size_t kMaxQueued = 2;

  // The device's executor. Its thread starts with its first run; leaked on purpose; in a forked child its use throws.
  static Executor& get(int device);

  // While it lives, a short program that the thread enqueues into an empty queue runs on that thread at the scope's end, which saves two
  // handovers. It applies if the thread needs the results at once, if it has read the results of the last few runs before it queued the
  // next, or if other processes hold the other processors. Open it without the recording lock.
  class ShortRuns {
   public:
    explicit ShortRuns(int device, bool needs_results = true);
    ~ShortRuns();
    ShortRuns(const ShortRuns&) = delete;
    ShortRuns& operator=(const ShortRuns&) = delete;

   private:
    const int device_;
  };

  // Starts the device's thread, unless it runs. Throws UserError if that fails: call it before a run takes buffers from its tensors.
  void start();
  // A run without anything. Any thread.
  std::unique_ptr<Run> new_run();
  // Never blocks: called with the recording lock. Throws as start(). Returns the run's number, from 1 on.
  uint64_t enqueue(std::unique_ptr<Run> run);
  // Back-pressure: called without the recording lock after an enqueue; polls for signals.
  void wait_for_room();
  // Waits until everything queued so far on the device has ended. Rethrows the first error of a run that has not been raised yet, once.
  void drain();
  // As drain() if there is such an error now; returns at once if not.
  void check_news();
  // After an error or an interrupt has been raised: waits a moment for the later runs, so that the values they lost are known and no later
  // run takes them; their errors count as raised. Does not poll. Returns the devices of these runs: this device, and those with runs that
  // the interrupt cancelled.
  std::vector<int> settle(const std::exception_ptr& told);
  // Before the process ends: waits until all runs of all devices have ended, up to `limit`, then cancels them. False if some have still not
  // ended: then further calls do not wait for them, nor does the exit handler. That handler writes errors that were never raised to stderr
  // and turns exit status 0 into 1.
  static bool finish(std::chrono::milliseconds limit);
  bool idle() const;

 private:
  explicit Executor(int device) : device_(device) {}

  const int device_;
};

} // namespace torch_xla
