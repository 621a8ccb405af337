// Runs of programs: made, and handed over to the device's executor.
#pragma once

#include <cstdint>
#include <memory>

#include "program/program.h"
#include "runtime/executor.h"

namespace torch_xla {

// The caller of each function holds the device's recording lock.

// A run of the program, without inputs, outputs and numbers.
std::unique_ptr<Run> new_run(int device, const Program& program);
// A queued buffer for output i, of this type.
BufferRef make_output(const Program& program, size_t i, const Type& type);
// By the sync that began at `sync_ns`. The number of the run on its device.
uint64_t hand_over(int device, std::unique_ptr<Run> run, int64_t sync_ns);

} // namespace torch_xla
