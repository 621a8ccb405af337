// The program of a trace: in the device's cache, on disk, or compiled.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/program_cache.h"
#include "program/sync.h"
#include "runtime/buffer.h"
#include "trace/trace.h"

namespace torch_xla {

struct FoundProgram {
  const Program& program; // valid until the next call for the device
  std::vector<uint64_t> offsets; // of moving views: numbers after the trace's
};
// A program whose outputs include the alive values. Throws the error of a failed compile. The caller holds the device's recording lock.
// `donated`: the inputs that a compile may overwrite, in place of find_donated() of the trace.
FoundProgram find_or_compile(
    Trace& trace, const ValueBits& alive, SyncCause cause, std::optional<std::vector<bool>> donated = std::nullopt);

// By input of a run of `trace` (null: of no trace) on the device: whether the run alone uses the buffer. So: no lazy value refers to it, no
// other trace takes it, and no tensor gets it back except those of `replaced`, after a failure of this run. The caller holds the device's
// recording lock.
std::vector<bool> find_donated(
    int device, const Trace* trace, const std::vector<BufferRef>& inputs, const std::vector<PreviousRef>& replaced);
// The user's line of a node of the trace; empty if unknown.
std::string line_of(std::span<const int64_t> locations, int32_t node);
// For events: in eager mode a trace is one operation, its last node; else empty.
const char* operation_of(const Graph& graph);

} // namespace torch_xla
