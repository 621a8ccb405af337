// The memory that the system can still give to this process.
#pragma once

#include <cstdint>

namespace torch_xla::cpu {

// Bytes that the process can take before the system kills one for lack of memory: free and freeable memory of the machine and of its
// control groups (version 2, or 1 as containers mount it). INT64_MAX if unknown.
int64_t available_memory();

} // namespace torch_xla::cpu
