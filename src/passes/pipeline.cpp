// The order of the passes, with the verifier and the dumps between them.
#include "core/env.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

struct Pass {
  const char* name;
  void (*run)(Graph& graph);
};
constexpr Pass kPasses[] = {
    {"simplify", simplify},
    {"cse", cse},
    {"eliminate_dead_code", eliminate_dead_code},
};

bool checks_passes() {
#ifndef NDEBUG
  return true;
#else
  return env::debug_level() >= 3;
#endif
}

void check(const Graph& graph) {
  if (checks_passes()) {
    verify_graph(graph);
  }
}

void finish_stage(const char* name, const Graph& graph) {
  if (env::debug_level() >= 3) {
    env::debug_print(std::string("graph after ") + name, print_graph(graph));
  }
  check(graph);
}

} // namespace

Graph run_passes(const Graph& trace, KeepLibrary keeps) {
  check(trace);
  Graph graph = lower(trace, keeps);
  finish_stage("lower", graph);
  for (const Pass& pass : kPasses) {
    pass.run(graph);
    finish_stage(pass.name, graph);
  }
  return graph;
}

} // namespace torch_xla
