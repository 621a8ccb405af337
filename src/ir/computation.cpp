// A computation's key and its random streams.
#include "ir/computation.h"

#include "core/errors.h"
#include "ir/structure.h"

namespace torch_xla {
namespace {

void add_draw(const Graph& graph, ValueId seed, ValueId offset, std::vector<Computation::Draw>& draws) {
  bool given = graph.values[seed].kind == ValueKind::kScalar && graph.values[offset].kind == ValueKind::kScalar;
  XLA_CHECK(given, "a random node without a seed of its own");
  draws.push_back({graph.values[seed].index, graph.values[offset].index});
}

} // namespace

std::vector<Computation::Draw> find_draws(const Graph& graph) {
  std::vector<Computation::Draw> draws;
  for (const Node& node : graph.nodes) {
    size_t n = node.operands.size();
    if (node.op->traits & kRandom) {
      XLA_CHECK(n >= 2, "a random node without a seed of its own");
      add_draw(graph, node.operands[n - 2], node.operands[n - 1], draws);
    } else if (const Computation* body = find_body(node)) {
      XLA_CHECK(n >= body->graph.scalars.size(), "the operands of a loop are not its body's");
      size_t first = n - body->graph.scalars.size();
      for (const Computation::Draw& draw : body->draws) {
        add_draw(graph, node.operands[first + draw.seed], node.operands[first + draw.offset], draws);
      }
    }
  }
  return draws;
}

const Computation& body_of(const Attr& attr) {
  const auto* body = std::get_if<ComputationRef>(&attr);
  XLA_CHECK(body, "a loop without a body");
  return **body;
}

const Computation* find_body(const Node& node) {
  const auto* body = node.attrs.empty() ? nullptr : std::get_if<ComputationRef>(&node.attrs[kLoopBody]);
  return body ? body->get() : nullptr;
}

ComputationRef make_computation(Graph graph) {
  for (const Node& node : graph.nodes) {
    XLA_CHECK_KIND(
        NotImplemented, !(node.op->traits & kCollective), node.op->name, " cannot be part of a loop's body: reduce its results instead");
  }
  Hash128 hash = hash_graph(graph);
  std::vector<Computation::Draw> draws = find_draws(graph);
  return std::make_shared<const Computation>(Computation{std::move(graph), hash, std::move(draws)});
}

} // namespace torch_xla
