// How much memory the system would still give to this process.
#pragma once

#include <cstdint>

namespace torch_xla::cpu {

// Bytes that can be used without a process being ended for want of memory: what is free or can be freed, of the machine and of the control
// groups (version 2, or 1 as containers mount it) that the process is in. INT64_MAX where nothing tells.
int64_t available_memory();

} // namespace torch_xla::cpu
