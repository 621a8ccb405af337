// What programs are compiled with beside their trace: switches of PyTorch's, of this package's, and options of the user's for the plugin.
#pragma once

#include "engine/engine.h"

namespace torch_xla {

struct CompileSettings {
  Precision precision;
  bool fusion = true;
  NamedValues custom; // of set_compile_options()

  // Equal settings have equal hashes: part of the keys of programs.
  uint64_t hash() const;
};

// Those of now. Any thread.
CompileSettings read_compile_settings();

// Options that a plugin compiles all later programs with. Throws UserError (Value) for the embedded engine, which has none, unless they are
// empty. Any thread.
void set_compile_options(NamedValues options);

} // namespace torch_xla
