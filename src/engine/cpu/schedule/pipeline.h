// Scheduling: from a lowered graph to steps over planned memory.
#pragma once

#include <string>
#include <vector>

#include "engine/cpu/schedule/access.h"
#include "engine/cpu/schedule/fuse.h"
#include "engine/cpu/schedule/kernel_builder.h"
#include "engine/cpu/schedule/layout.h"
#include "engine/cpu/schedule/memory_plan.h"

namespace torch_xla::cpu {

// The results of the stages, in their order. Value ids are those of laid_out.graph.
struct Schedule {
  bool fusion = true; // make_schedule's argument
  LaidOutGraph laid_out;
  Recompute recompute; // for grouping and fusing
  Groups groups;
  std::vector<Step> steps; // in the order of the run
  std::vector<BuiltKernel> kernels; // parallel to steps; empty for other steps than kernels
  std::vector<StepAccess> accesses; // parallel to steps; for the memory plan
  MemoryPlan plan;
};

// Runs the stages, with the rules of verify.h after each if env::verify(). `fusion` false: each primitive is a kernel of its own, and
// library calls allocate their results. The device is for the events.
Schedule make_schedule(const Graph& graph, int device, bool fusion);

// Memories and steps as text, for dumps.
std::string schedule_text(const Schedule& schedule);

} // namespace torch_xla::cpu
