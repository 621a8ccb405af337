// A small program as it was recorded, run node by node: what has run a few times only is not worth a plan.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace torch_xla::cpu {

// The program of the trace, or null where it is none for this: its values are too large, so that it gains by being fused, or it has a node
// that means something in the whole of its program only.
std::shared_ptr<Executable> interpret(const Graph& trace, const CompileOptions& options);

} // namespace torch_xla::cpu
