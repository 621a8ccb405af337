// Which values of a trace are shards: other values on each device.
#pragma once

#include <vector>

#include "trace/trace.h"

namespace torch_xla {

// By value: whether it is computed from a shard. The caller holds the recording lock.
std::vector<bool> find_shards(Trace& trace);

} // namespace torch_xla
