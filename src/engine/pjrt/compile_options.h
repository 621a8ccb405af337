// CompileOptionsProto: the options of a compile, as plugins take them.
#pragma once

#include <string>

#include "engine/engine.h"

namespace torch_xla::pjrt {

// One replica, with a partition on each device of these numbers, and the user's options, which have no lists. `platform`: the plugin's name
// of it, as options that the user has not set depend on it.
std::string compile_options(const std::string& platform, const std::vector<int>& device_ids, const NamedValues& custom);

// XLA_FLAGS, which plugins read too.
std::string xla_flags();

} // namespace torch_xla::pjrt
