// The analyses that PT_XLA_DEBUG_LEVEL asks for: of each compile, and from level 2 on of each run.
#pragma once

#include <string>
#include <vector>

#include "core/observer.h"
#include "program/program_cache.h"
#include "trace/trace.h"

namespace torch_xla {

// Starts to print where the environment asks for it, at the first call; true where it prints. Throws UserError for a variable that is not
// understood and a file that cannot be written, at each call until one succeeds.
bool start_analysis();

// What observers are told of a program.
class ProgramFacts {
 public:
  // `donated` by parameter of the trace.
  ProgramFacts(const Trace& trace, const Program& program, const std::vector<bool>& donated);
  ProgramFacts(const ProgramFacts&) = delete;
  ProgramFacts& operator=(const ProgramFacts&) = delete;
  const observer::Program& get() const {
    return program_;
  }

 private:
  std::string hash_;
  observer::Program program_;
};

} // namespace torch_xla
