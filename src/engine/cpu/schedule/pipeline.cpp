// The stages of scheduling in their order, with the verifier between them.
#include "engine/cpu/schedule/pipeline.h"

#include "core/env.h"
#include "core/observer.h"
#include "engine/cpu/schedule/beside.h"
#include "engine/cpu/schedule/order.h"
#include "engine/cpu/schedule/verify.h"

namespace torch_xla::cpu {
namespace {

void run_layout(Schedule& s, const Graph& graph) {
  s.laid_out = lay_out(graph);
  if (env::debug_level() >= 3) {
    env::debug_print("graph after layout", print_graph(s.laid_out.graph));
  }
}

void run_grouping(Schedule& s, const Graph& /*graph*/) {
  s.recompute = Recompute(s.laid_out.graph);
  s.groups = group_nodes(s.laid_out, s.recompute, s.fusion);
}

void run_fusing(Schedule& s, const Graph& /*graph*/) {
  s.steps = fuse(s.laid_out, s.recompute, s.groups, s.fusion);
}

// Without fusion, which is for looking into faults, steps stay in the order of the graph.
void run_ordering(Schedule& s, const Graph& /*graph*/) {
  if (s.fusion) {
    s.steps = gather_calls(s.laid_out, order_steps(s.laid_out, s.steps));
  }
}

void run_kernel_building(Schedule& s, const Graph& /*graph*/) {
  for (const Step& step : s.steps) {
    s.kernels.push_back(step.kind == StepKind::kKernel ? build_kernel(s.laid_out, step) : BuiltKernel());
  }
}

void run_accesses(Schedule& s, const Graph& /*graph*/) {
  s.accesses = find_accesses(s.laid_out, s.steps, s.kernels, s.fusion);
}

void run_memory_plan(Schedule& s, const Graph& /*graph*/) {
  s.plan = plan_memory(s.laid_out, s.accesses);
}

// In order: each stage decides what the earlier ones left open, and changes none of their decisions.
struct Stage {
  const char* name; // for observers and in the verifiers' errors
  void (*run)(Schedule& schedule, const Graph& graph);
  void (*verify)(const Schedule& schedule, const char* stage);
};
constexpr Stage kStages[] = {
    {"layout", run_layout, verify_layout},
    {"grouping", run_grouping, verify_groups},
    {"fusing", run_fusing, verify_steps},
    {"ordering", run_ordering, verify_steps},
    {"kernel building", run_kernel_building, verify_kernels},
    {"accesses", run_accesses, verify_accesses},
    {"memory plan", run_memory_plan, verify_memory},
};

} // namespace

Schedule make_schedule(const Graph& graph, int device, bool fusion) {
  Schedule schedule;
  schedule.fusion = fusion;
  for (const Stage& stage : kStages) {
    {
      observer::Span span(observer::Phase::kPass, device, stage.name);
      stage.run(schedule, graph);
    }
    if (env::verify()) {
      stage.verify(schedule, stage.name);
    }
  }
  return schedule;
}

} // namespace torch_xla::cpu
