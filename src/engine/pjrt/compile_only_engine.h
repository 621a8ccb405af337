// The engine that compiles for hardware that is not there.
#pragma once

#include <string>

#include "engine/compile_only.h"

namespace torch_xla {

// Starts the process that compiles and asks it for the target's devices; never destroyed. `device` is the value of PJRT_DEVICE, for
// messages. Throws UserError.
Engine* open_compile_only_engine(const std::string& device, CompileTarget target);

} // namespace torch_xla
