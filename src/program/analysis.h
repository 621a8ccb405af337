// The analyses of PT_XLA_DEBUG_LEVEL: of each compile, and from level 2 on of each run.
#pragma once

#include <string>
#include <vector>

#include "core/observer.h"
#include "program/program_cache.h"
#include "trace/trace.h"

namespace torch_xla {

// At the first call starts to print if the environment asks for it; true if it prints. Throws UserError for an invalid variable or an
// unwritable file, at each call until one succeeds.
bool start_analysis();

// A program as observers see it.
class ProgramFacts {
 public:
  // `donated`: by parameter of the trace.
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
