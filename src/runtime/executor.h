// Executor: one thread for each device that runs its queued programs in order, while the user's threads record on.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "runtime/buffer.h"
#include "runtime/recovery.h"

namespace torch_xla {

struct Run {
  const char* operation = ""; // the name of the only one that it computes in eager mode
  std::shared_ptr<Executable> executable;
  std::vector<BufferRef> inputs;
  std::vector<bool> donated; // decided at enqueue, by who owns the buffer then
  std::vector<bool> restored; // donated, and in `replaced` too: given back if the run fails
  std::vector<PreviousRef> replaced; // emptied when the run has ended well
  RecordedRef recorded; // where the run may fail for what its inputs hold: then all that is donated is restored; may be null
  std::vector<uint64_t> scalars;
  RunOptions options;
  int device = 0; // set by enqueue()
  bool waits_for_others = false; // for other replicas
  std::vector<BufferRef> outputs; // parallel to Graph::outputs; null where nobody wants the value
  // Ids of the user's lines, by Node::location of the lowered graph.
  std::vector<int64_t> lines;
  // What to add to an error of a node (an index into `lines`), or of the whole run (-1): the user's line. May be null.
  std::string (*describe)(std::span<const int64_t> lines, int32_t node) = nullptr;
};

class Executor {
 public:
  // wait_for_room() returns when no more than this many runs are queued or running.
  static constexpr size_t kMaxQueued = 2;

  // The device's. Its thread starts with its first run; leaked on purpose; after fork the child gets an error on use.
  static Executor& get(int device);

  // A short program that the thread enqueues while this lives, with nobody before it, runs on the thread itself, when the scope ends,
  // instead of being handed over and back: for a thread that goes on with its results, or has read those of the last few runs before it
  // queued the next, and for any where other processes have the other processors. Opened without the recording lock.
  class ShortRuns {
   public:
    explicit ShortRuns(int device, bool needs_results = true);
    ~ShortRuns();
    ShortRuns(const ShortRuns&) = delete;
    ShortRuns& operator=(const ShortRuns&) = delete;

   private:
    const int device_;
  };

  // Starts the device's thread, unless it runs. Throws UserError where that cannot be: called before a run takes anything from its tensors.
  void start();
  // Never blocks: called with the recording lock. Throws as start(). Returns the run's number, from 1 on.
  uint64_t enqueue(Run run);
  // Back-pressure: called without the recording lock after an enqueue; polls for signals.
  void wait_for_room();
  // Waits until everything queued so far on the device has ended. Rethrows the first error of a run that nobody has been told yet, once.
  void drain();
  // As drain() if such an error is known by now; returns at once if not.
  void check_news();
  // After an error or an interrupt has been told: waits a moment for the runs behind, so that what they cost is known too and no later run
  // takes it; that error of theirs counts as told. Does not poll. Returns whose runs they were: this device, and those that an interrupt
  // has cancelled runs of.
  std::vector<int> settle(const std::exception_ptr& told);
  // Before the process ends: waits until all runs of all devices have ended, up to `limit`, then cancels them. False if some have still not
  // ended: then further calls do not wait for them, and the exit handler leaves the process without them. That handler writes errors that
  // nobody was told to stderr and makes the exit status 1 of a 0.
  static bool finish(std::chrono::milliseconds limit);
  bool idle() const;

 private:
  explicit Executor(int device) : device_(device) {}

  const int device_;
};

} // namespace torch_xla
