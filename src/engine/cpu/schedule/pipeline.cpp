// The stages of scheduling in their order, with the verifier between them.
#include "engine/cpu/schedule/pipeline.h"

#include "core/env.h"
#include "core/observer.h"
#include "engine/cpu/schedule/verify.h"

namespace torch_xla::cpu {
namespace {

struct Input {
  const Graph& graph;
  bool fusion;
};

void run_layout(Schedule& s, const Input& in) {
  s.laid_out = lay_out(in.graph);
  if (env::debug_level() >= 3) {
    env::debug_print("graph after layout", print_graph(s.laid_out.graph));
  }
}

void run_grouping(Schedule& s, const Input& in) {
  s.recompute = Recompute(s.laid_out.graph);
  s.groups = group_nodes(s.laid_out, s.recompute, in.fusion);
}

void run_fusing(Schedule& s, const Input& in) {
  s.steps = fuse(s.laid_out, s.recompute, s.groups, in.fusion);
}

void run_kernel_building(Schedule& s, const Input& /*in*/) {
  for (const Step& step : s.steps) {
    s.kernels.push_back(step.kind == StepKind::kKernel ? build_kernel(s.laid_out, step) : BuiltKernel());
  }
}

void run_memory_planning(Schedule& s, const Input& in) {
  s.accesses = find_accesses(s.laid_out, s.steps, s.kernels, in.fusion);
  s.plan = plan_memory(s.laid_out, s.accesses);
}

// In their order: each decides on what is left open by those before it, and takes nothing back.
struct Stage {
  const char* name;
  void (*run)(Schedule& schedule, const Input& in);
  void (*verify)(const Schedule& schedule);
};
constexpr Stage kStages[] = {
    {"layout", run_layout, verify_layout},
    {"group", run_grouping, verify_groups},
    {"fuse", run_fusing, verify_steps},
    {"build kernels", run_kernel_building, verify_kernels},
    {"plan memory", run_memory_planning, verify_memory},
};

} // namespace

Schedule make_schedule(const Graph& graph, int device, bool fusion) {
  Schedule schedule;
  for (const Stage& stage : kStages) {
    {
      observer::Span span(observer::Phase::kPass, device, stage.name);
      stage.run(schedule, {graph, fusion});
    }
    if (env::verify()) {
      stage.verify(schedule);
    }
  }
  return schedule;
}

} // namespace torch_xla::cpu
