// Building up a graph's lists of values and nodes, and which nodes are live.
#include "ir/graph.h"

#include <bit>

#include "core/errors.h"

namespace torch_xla {
namespace {

// A size that wraps would get too small a buffer.
void check_size(const Type& type) {
  auto bytes = static_cast<int64_t>(item_size(type.dtype));
  bool fits = true;
  bool empty = false;
  for (int64_t d : type.dims) {
    fits = fits && d >= 0 && !__builtin_mul_overflow(bytes, d, &bytes);
    empty |= d == 0;
  }
  XLA_CHECK(fits || empty, "Storage size calculation overflowed with sizes=", dims_text(type.dims, '[', ']'));
}

} // namespace

ValueId Graph::add_parameter(Type type, Dims strides, ShardingRef sharding) {
  auto id = static_cast<ValueId>(values.size());
  values.push_back({std::move(type), ValueKind::kParameter, static_cast<int32_t>(parameters.size())});
  parameters.push_back(id);
  parameter_strides.push_back(std::move(strides));
  parameter_shardings.push_back(std::move(sharding));
  return id;
}

ValueId Graph::add_scalar(DType dtype) {
  auto id = static_cast<ValueId>(values.size());
  values.push_back({{dtype, {}}, ValueKind::kScalar, static_cast<int32_t>(scalars.size())});
  scalars.push_back(id);
  return id;
}

ValueId Graph::add_node(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, std::span<const Type> results, int32_t location) {
  for (const Type& type : results) {
    check_size(type);
  }
  auto first = static_cast<ValueId>(values.size());
  auto index = static_cast<int32_t>(nodes.size());
  for (const Type& type : results) {
    Value& value = values.emplace_back();
    value.type = type;
    value.index = index;
  }
  Node& node = nodes.emplace_back();
  node.op = &op;
  node.operands = std::move(operands);
  node.attrs = std::move(attrs);
  node.first_result = first;
  node.num_results = static_cast<int32_t>(results.size());
  node.location = location;
  return first;
}

void Graph::reserve(size_t num_nodes, size_t num_values) {
  nodes.reserve(num_nodes);
  values.reserve(num_values);
}

void Graph::clear() {
  nodes.clear();
  values.clear();
  parameters.clear();
  scalars.clear();
  fixed_scalars.clear();
  outputs.clear();
  parameter_strides.clear();
  parameter_shardings.clear();
  output_strides.clear();
}

Attr number_attr(DType dtype, uint64_t bits) {
  return dtype == DType::F64 ? Attr(std::bit_cast<double>(bits)) : Attr(static_cast<int64_t>(bits));
}

std::vector<bool> find_live_nodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes.size());
  auto mark = [&](ValueId v) {
    if (v != kNoValue && graph.values[v].kind == ValueKind::kResult) {
      live[graph.values[v].index] = true;
    }
  };
  for (ValueId v : graph.outputs) {
    mark(v);
  }
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    live[i] = live[i] || (graph.nodes[i].op->traits & kCollective);
    if (live[i]) {
      for (ValueId v : graph.nodes[i].operands) {
        mark(v);
      }
    }
  }
  return live;
}

std::vector<int> count_uses(const Graph& graph, const std::vector<bool>& live) {
  std::vector<int> uses(graph.values.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (ValueId v : graph.nodes[i].operands) {
      if (live[i] && v != kNoValue) {
        ++uses[v];
      }
    }
  }
  for (ValueId v : graph.outputs) {
    ++uses[v];
  }
  return uses;
}

} // namespace torch_xla
