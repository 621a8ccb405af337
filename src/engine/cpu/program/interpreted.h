// A small program that runs node by node, as it was recorded: a program that has run only a few times is not worth a plan.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace torch_xla::cpu {

// The program of the trace, or null if the trace should be compiled: its values are so large that fusion pays, or a node cannot run apart
// from the program.
std::shared_ptr<Executable> interpret(const Graph& trace, const CompileOptions& options);

} // namespace torch_xla::cpu
