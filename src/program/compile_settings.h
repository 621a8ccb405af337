// The settings of a compile beside the trace: switches of PyTorch and this package, the user's options for the plugin.
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

// The current settings. Any thread.
CompileSettings read_compile_settings();

// A plugin's options for all later compiles. Throws UserError (Value) if they are not empty and the engine is the embedded one, which has
// no options. Any thread.
void set_compile_options(NamedValues options);

} // namespace torch_xla
