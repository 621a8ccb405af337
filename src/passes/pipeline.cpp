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
  const Graph* trace = &body;
  Graph graph;
  auto take = [&](const char* name, std::optional<Graph> changed) { // nothing: the pass found nothing to change
    if (changed) {
      graph = *std::move(changed);
      trace = &graph;
      run_stage(name, device, graph, [](Graph&) {});
    }
  };
  take("outline", rules.outlines ? rules.outlines(*trace) : std::nullopt);
  take("add_into_parts", add_into_parts(*trace));
  take("attention_in_turns", rules.most_scores > 0 ? attention_in_turns(*trace, rules.most_scores) : std::nullopt);
  take("fuse_convolutions", rules.fuses ? fuse_convolutions(*trace, rules.fuses) : std::nullopt);
  run_stage("lower", device, graph, [&](Graph& lowered) { lowered = lower(*trace, rules.keeps); });
  if (rules.widens && std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return rules.widens(graph, node); })) {
    run_stage("widen", device, graph, [&](Graph& widened) { widened = widen(graph, rules.widens); });
  }
  take("integer_products", rules.reads_integers ? integer_products(graph, rules.reads_integers) : std::nullopt);
  take("integer_convolutions", rules.convolves_integers ? integer_convolutions(graph) : std::nullopt);
  for (const Pass& pass : kPasses) {
    run_stage(pass.name, device, graph, pass.run);
  }
  return graph;
}

} // namespace torch_xla
