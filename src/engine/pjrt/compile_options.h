// CompileOptionsProto: the options of a compile, as plugins take them.
#pragma once

#include <string>

#include "engine/engine.h"

namespace torch_xla::pjrt {

// One replica in one partition, on the device of this number, with the user's options, which have no lists. `platform`: the plugin's name
// of it, as options that the user has not set depend on it.
std::string compile_options(const std::string& platform, int device_id, const NamedValues& custom);

// XLA_FLAGS, which plugins read too.
std::string xla_flags();

} // namespace torch_xla::pjrt
