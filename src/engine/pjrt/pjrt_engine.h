// The engine that runs programs through a PJRT plugin.
#pragma once

#include <string>

#include "engine/engine.h"

namespace torch_xla {

// Loads the plugin and opens its devices; never destroyed. `device` is the value of PJRT_DEVICE, for messages. Throws UserError.
Engine* open_pjrt_engine(const std::string& device, const PluginFile& plugin);

} // namespace torch_xla
