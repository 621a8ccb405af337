// What a computation's key is made of, and its random streams.
#include "ir/computation.h"

#include <string_view>

#include "core/errors.h"

namespace torch_xla {
namespace {

void add_type(Hash128& hash, const Type& type) {
  hash.add(static_cast<uint64_t>(type.dtype));
  hash.add_bytes(type.dims.data(), type.dims.size() * sizeof(int64_t));
}

void add_values(Hash128& hash, std::span<const ValueId> values) {
  hash.add_bytes(values.data(), values.size_bytes());
}

Hash128 hash_graph(const Graph& graph) {
  Hash128 hash;
  add_values(hash, graph.parameters);
  add_values(hash, graph.scalars);
  for (const Value& value : graph.values) {
    add_type(hash, value.type);
  }
  for (const Node& node : graph.nodes) {
    // No address: programs on disk are found by it. Rows of one name are told apart by their kind (library_form()).
    std::string_view name = node.op->name;
    hash.add_bytes(name.data(), name.size());
    hash.add(static_cast<uint64_t>(node.op->kind));
    add_values(hash, {node.operands.data(), node.operands.size()});
    hash.add(static_cast<uint64_t>(node.num_results));
    for (const Attr& attr : node.attrs) {
      hash_attr(attr, hash);
    }
  }
  add_values(hash, graph.outputs);
  return hash;
}

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
    } else if (node.op->traits & kLoop) {
      const Computation& body = body_of(node.attrs.empty() ? Attr() : node.attrs[kLoopBody]);
      XLA_CHECK(n >= body.graph.scalars.size(), "the operands of a loop are not its body's");
      size_t first = n - body.graph.scalars.size();
      for (const Computation::Draw& draw : body.draws) {
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
