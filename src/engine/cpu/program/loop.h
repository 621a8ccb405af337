// The step of a program that runs a body in turns.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/cpu/library/call.h"
#include "engine/cpu/schedule/pipeline.h"
#include "engine/engine.h"
#include "ir/computation.h"

namespace torch_xla::cpu {

// Compiles the body once; each turn is a run of it. Carried values stay in the body's own buffers, which later turns write in place. Not
// thread-safe.
class Loop {
 public:
  // The options are those of the node's program.
  Loop(const Node& node, const CompileOptions& options);
  // Addresses of element 0 of row-major operands, parallel to the node's. Gives each result, row-major, a block of its own. Throws
  // StepError as a library call does; a cancelled run ends between steps of the body.
  void run(Pool& pool, std::span<void* const> operands, std::span<ResultMemory> results, const RunOptions& options);

 private:
  class Turns;

  ComputationRef body_;
  size_t carried_;
  size_t sliced_;
  int64_t trips_; // -1: as long as the last carried value is true
  bool reverse_;
  int device_;
  int32_t location_;
  std::shared_ptr<Executable> program_;
};

// The schedule's loops, in their order.
std::vector<Loop> compile_loops(const Schedule& schedule, const CompileOptions& options);

} // namespace torch_xla::cpu
