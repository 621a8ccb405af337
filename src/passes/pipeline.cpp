// The order of the passes, with the verifier and the dumps between them.
#include <algorithm>

#include "core/env.h"
#include "core/observer.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

struct Pass {
  const char* name;
  void (*run)(Graph& graph);
};
constexpr Pass kPasses[] = {
    {"simplify", simplify},
    {"share_heads", share_heads},
    {"cse", cse},
    {"eliminate_dead_code", eliminate_dead_code},
};

void check(const Graph& graph) {
  if (env::verify()) {
    verify_graph(graph);
  }
}

template <typename Stage>
void run_stage(const char* name, int device, Graph& graph, Stage stage) {
  {
    observer::Span span(observer::Phase::kPass, device, name);
    stage(graph);
  }
  if (env::debug_level() >= 3) {
    env::debug_print(std::string("graph after ") + name, print_graph(graph));
  }
  check(graph);
}

} // namespace

Graph run_passes(const Graph& trace, int device, const EngineRules& rules) {
  FloatStorage storage = env::float_storage();
  if (storage == FloatStorage::kFull) {
    return run_passes_on_body(trace, device, rules);
  }
  check(trace);
  Graph narrowed;
  run_stage("narrow", device, narrowed, [&](Graph& graph) { graph = narrow(trace, storage, rules.narrow_products); });
  return run_passes_on_body(narrowed, device, rules);
}

Graph run_passes_on_body(const Graph& body, int device, const EngineRules& rules) {
  check(body);
  Graph graph;
  std::optional<Graph> outlined = rules.outlines ? rules.outlines(body) : std::nullopt;
  if (outlined) {
    run_stage("outline", device, *outlined, [](Graph&) {});
  }
  std::optional<Graph> added = add_into_parts(outlined ? *outlined : body);
  if (added) {
    run_stage("add_into_parts", device, *added, [](Graph&) {});
  }
  const Graph& trace = added ? *added : outlined ? *outlined : body;
  std::optional<Graph> turning = rules.most_scores > 0 ? attention_in_turns(trace, rules.most_scores) : std::nullopt;
  if (turning) {
    run_stage("attention_in_turns", device, *turning, [](Graph&) {});
  }
  std::optional<Graph> fused = rules.fuses ? fuse_convolutions(turning ? *turning : trace, rules.fuses) : std::nullopt;
  if (fused) {
    run_stage("fuse_convolutions", device, *fused, [](Graph&) {});
  }
  const Graph& whole = fused ? *fused : turning ? *turning : trace;
  run_stage("lower", device, graph, [&](Graph& lowered) { lowered = lower(whole, rules.keeps); });
  if (rules.widens && std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return rules.widens(graph, node); })) {
    run_stage("widen", device, graph, [&](Graph& widened) { widened = widen(graph, rules.widens); });
  }
  if (std::optional<Graph> reading = rules.reads_integers ? integer_products(graph, rules.reads_integers) : std::nullopt) {
    run_stage("integer_products", device, graph, [&](Graph& changed) { changed = std::move(*reading); });
  }
  if (std::optional<Graph> reading = rules.convolves_integers ? integer_convolutions(graph) : std::nullopt) {
    run_stage("integer_convolutions", device, graph, [&](Graph& changed) { changed = std::move(*reading); });
  }
  for (const Pass& pass : kPasses) {
    run_stage(pass.name, device, graph, pass.run);
  }
  return graph;
}

} // namespace torch_xla
