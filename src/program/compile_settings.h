// The settings of a compile beside the trace: switches of PyTorch and this package, the user's options for the plugin.
#pragma once

#include <optional>

#include "engine/engine.h"

namespace torch_xla {

struct CompileSettings {
  Precision precision;
  bool fusion = true;
  NamedValues custom; // of set_compile_options()

  // Equal settings have equal hashes: part of the keys of programs.
  uint64_t hash() const;
};

// The current settings for programs of the device. Any thread.
Precision read_precision(); // of PyTorch's switches, for this engine
CompileSettings read_compile_settings(int device);

// A plugin's options for all later compiles, in place of earlier ones. With a device: for its programs alone, beside the options for all
// devices and before them. Throws UserError (Value) if they are not empty and the engine is the embedded one, which has no options. Any
// thread.
void set_compile_options(NamedValues options, std::optional<int> device);

} // namespace torch_xla
