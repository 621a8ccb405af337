// A program that runs node by node, as it was recorded: a small one in its first runs, which are not worth a plan, and what was recorded
// before an operation that failed.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace torch_xla::cpu {

// The program of the trace, or null if the trace should be compiled: its values are so large that fusion pays, or a node cannot run apart
// from the program.
std::shared_ptr<Executable> interpret(const Graph& trace, const CompileOptions& options);
// As Engine::run_in_order(), of a trace whose values have the types in which they are stored.
std::shared_ptr<Executable> run_in_order(Graph trace, int device);

} // namespace torch_xla::cpu
