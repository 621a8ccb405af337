// Executor: one thread that runs queued programs in order, while the user's thread records on.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "runtime/buffer.h"

namespace torch_xla {

struct Run {
  std::shared_ptr<Executable> executable;
  std::vector<BufferRef> inputs;
  std::vector<bool> donated; // decided at enqueue, by who owns the buffer then
  std::vector<bool> restored; // donated, and in `replaced` too: given back if the run fails
  std::vector<PreviousRef> replaced; // emptied when the run has ended well
  std::vector<uint64_t> scalars;
  RunOptions options;
  std::vector<BufferRef> outputs; // parallel to Graph::outputs; null where nobody wants the value
  // What to add to an error of a node (Node::location as lowered), or of the whole run (-1): the user's line. May take the GIL.
  std::function<std::string(int32_t)> describe;
};

class Executor {
 public:
  // wait_for_room() returns when no more than this many runs are queued or running.
  static constexpr size_t kMaxQueued = 2;

  static Executor& get(); // starts its thread at first use; leaked on purpose; after fork the child gets an error on use

  // Never blocks: called with the recording lock.
  void enqueue(Run run);
  // Back-pressure: called without the recording lock after an enqueue; polls for signals.
  void wait_for_room();
  // Waits until everything queued so far has ended. Rethrows the first error of a run that nobody has been told yet, once.
  void drain();
  // As drain() if such an error is known by now; returns at once if not.
  void check_news();
  // After an error or an interrupt has been told: waits a moment for the runs behind, so that what they cost is known too and no later run
  // takes it; that error of theirs counts as told. Does not poll.
  void settle(const std::exception_ptr& told);
  // Before the process ends: waits until all runs have ended, up to `limit`, then cancels them. False if some have still not ended: then
  // the exit handler leaves the process without them. That handler writes an error that nobody was told to stderr and makes the exit
  // status 1 of a 0.
  bool finish(std::chrono::milliseconds limit);
  bool idle() const;
};

} // namespace torch_xla
