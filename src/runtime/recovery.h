// Recovery: after an operation has failed for the values of its operands, tensors get the values that eager would have left: the results of
// all operations recorded before it.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#include "ir/graph.h"
#include "runtime/buffer.h"

namespace torch_xla {

struct Run;

// A trace as recorded, kept while its run may fail.
struct Recorded {
  // A value that a storage held until a later operation of the trace wrote the storage.
  struct Overwritten {
    PreviousRef previous; // the Previous of the storage, which takes the value
    ValueId value = kNoValue;
    // The value's layout in the storage.
    DType dtype = DType::Undefined;
    Dims dims;
    Dims strides;
  };

  Graph graph; // Node::location is the node's own number; outputs are the program's
  std::vector<Overwritten> overwritten; // in the order of the writes
  std::atomic<bool> in_use{false};
};

// A run's hold on memory that its recorder keeps for it; the recorder reuses the memory after this object's end, on any thread.
struct EndUse {
  void operator()(Recorded* recorded) const {
    recorded->overwritten.clear();
    recorded->in_use.store(false, std::memory_order_release);
  }
};
using RecordedRef = std::unique_ptr<Recorded, EndUse>;

// For a run that has failed and holds its inputs and `recorded` again. Computes what was recorded before the operation that `error`, a
// StepError, names, and gives it to the run's outputs, which are then ready and none of the run's any more, and to what `overwritten`
// names. Returns the error of the first operation, in the order of recording, that fails: programs need not run in that order. Other errors
// are returned as they are. Compiles nothing. Device thread only.
std::exception_ptr recover(Run& run, std::exception_ptr error);

} // namespace torch_xla
