// Executor: one thread that runs queued programs in order, while the user's thread records on.
#pragma once

#include <cstdint>
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
  // Waits until everything queued so far has ended. Rethrows the first error of a run that no wait has reported yet, once.
  void drain();
  bool idle() const;
};

} // namespace torch_xla
