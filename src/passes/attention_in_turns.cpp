// Attention in turns: long sequences take a loop over blocks of queries, whose scores fit the device's own memory. All scores at once would
// be written and read several times, and exceed the memory for long ones.
#include <algorithm>
#include <limits>
#include <numeric>

#include "ir/builder.h"
#include "ir/computation.h"
#include "ops/registry.h"
#include "ops/tables.h"
#include "passes/graph_copy.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

constexpr int64_t kFewestRows = 16; // of a block

// One call, or its gradient: operands of 4 dims without a mask.
struct Call {
  DType dtype;
  Dims q; // [B, H, T, E]
  int64_t keys;
  bool causal;
  Attr scale;

  int64_t scores_of_row() const {
    return q[0] * q[1] * keys;
  }
};

// The rows of a block: the most that divide the queries. 0: no number fits.
int64_t rows_of_block(const Call& call, int64_t most_scores) {
  for (int64_t rows = std::min(call.q[2], most_scores / call.scores_of_row()); rows >= kFewestRows; --rows) {
    if (call.q[2] % rows == 0) {
      return rows;
    }
  }
  return 0;
}

// Appends nodes to a graph: a loop around the call.
class Turns {
 public:
  Turns(Graph& graph, const Node& node, const Call& call, int64_t rows)
      : b_(graph), node_(node), call_(call), rows_(rows), turns_(call.q[2] / rows) {
    b_.set_location(node.location);
  }

  // Query, keys, values: the output and the logarithms of the sums.
  std::vector<ValueId> attend(std::span<const ValueId> operands) {
    std::vector<ValueId> blocks{in_blocks(operands[0])};
    std::vector<ValueId> given = set_apart(b_, {blocks[0], operands[1], operands[2]});
    Graph body;
    ValueId start = body.add_parameter({DType::I32, {}});
    std::vector<ValueId> inner = add_parameters(body, given, 1);
    Builder b(body);
    std::vector<ValueId> apart = set_apart(b, {inner[0], inner[1]});
    const Type query = b.type(inner[0]);
    const Dims& d = query.dims;
    const Type results[] = {query, {query.dtype == DType::F64 ? DType::F64 : DType::F32, {d[0], d[1], d[2]}}};
    ValueId first = body.add_node(*node_.op, {apart[0], apart[1], inner[2], mask(b, start)}, attrs(), results);
    body.outputs = {next(b, start), first, first + 1};
    ValueId made = loop(std::move(body), {b_.constant_int(0, DType::I32)}, given, 1);
    return {joined(made + 1), joined(made + 2)};
  }

  // Gradient, query, keys, values, output, logarithms of the sums: the gradients of query, keys and values. Each block adds to the last
  // two.
  std::vector<ValueId> attend_backward(std::span<const ValueId> operands) {
    std::vector<ValueId> given;
    for (size_t i : {0, 1, 4, 5}) {
      given.push_back(in_blocks(operands[i]));
    }
    given = set_apart(b_, {given[0], given[1], given[2], given[3], operands[2], operands[3]});
    const Type key = b_.type(operands[2]);
    const Type sums{key.dtype == DType::F64 ? DType::F64 : DType::F32, key.dims};
    Graph body;
    ValueId start = body.add_parameter({DType::I32, {}});
    ValueId keys_so_far = body.add_parameter(sums);
    ValueId values_so_far = body.add_parameter(sums);
    std::vector<ValueId> inner = add_parameters(body, given, 4);
    Builder b(body);
    const Type results[] = {b.type(inner[1]), key, key};
    ValueId first =
        body.add_node(*node_.op, {inner[0], inner[1], inner[4], inner[5], inner[2], inner[3], mask(b, start)}, attrs(), results);
    auto add = [&](ValueId sum, ValueId more) { return (Ex(&b, sum) + Ex(&b, more).to(sums.dtype)).id(); };
    body.outputs = {next(b, start), add(keys_so_far, first + 1), add(values_so_far, first + 2), first};
    ValueId none = b_.broadcast(b_.constant(0, sums.dtype), sums.dims);
    ValueId made = loop(std::move(body), {b_.constant_int(0, DType::I32), none, none}, given, 4);
    auto rounded = [&](ValueId v) { return Ex(&b_, v).to(key.dtype).id(); };
    return {joined(made + 3), rounded(made + 1), rounded(made + 2)};
  }

 private:
  // The values behind a barrier, in their order. libtpu makes one kernel of the first product and the softmax only if it does not pull the
  // computation of the product's operands into it, and would compute keys that heads share in each turn.
  static std::vector<ValueId> set_apart(Builder& b, const std::vector<ValueId>& values) {
    std::vector<Type> types;
    for (ValueId v : values) {
      types.push_back(b.type(v));
    }
    std::vector<ValueId> apart(values.size());
    std::iota(
        apart.begin(), apart.end(), b.library(get_op("xla::optimization_barrier"), values, {static_cast<int64_t>(values.size())}, types));
    return apart;
  }

  // [B, H, T, ...] as [turns, B, H, rows, ...].
  ValueId in_blocks(ValueId v) {
    const Dims d = b_.type(v).dims;
    return d.size() == 4 ? b_.permute(b_.reshape(v, {d[0], d[1], turns_, rows_, d[3]}), {2, 0, 1, 3, 4})
                         : b_.permute(b_.reshape(v, {call_.q[0], call_.q[1], turns_, rows_}), {2, 0, 1, 3});
  }

  // The inverse.
  ValueId joined(ValueId v) {
    const Dims d = b_.type(v).dims;
    return d.size() == 5 ? b_.reshape(b_.permute(v, {1, 2, 0, 3, 4}), {d[1], d[2], turns_ * rows_, d[4]})
                         : b_.reshape(b_.permute(v, {1, 2, 0, 3}), {d[1], d[2], turns_ * rows_});
  }

  // Of a body: blocks of the first `sliced` values, then the others.
  std::vector<ValueId> add_parameters(Graph& body, const std::vector<ValueId>& given, size_t sliced) const {
    std::vector<ValueId> parameters;
    for (size_t i = 0; i < given.size(); ++i) {
      Type type = b_.type(given[i]);
      if (i < sliced) {
        type.dims = Dims(type.dims.data() + 1, type.dims.size() - 1);
      }
      parameters.push_back(body.add_parameter(type));
    }
    return parameters;
  }

  // Of a block whose first query is `start`; none without is_causal.
  ValueId mask(Builder& b, ValueId start) const {
    if (!call_.causal) {
      return kNoValue;
    }
    Ex row(&b, b.iota({rows_, call_.keys}, 0, DType::I32));
    Ex column(&b, b.iota({rows_, call_.keys}, 1, DType::I32));
    Ex open(&b, b.constant(0, call_.dtype)); // ATen's kernel takes a mask of the query's type
    return select(column <= row + Ex(&b, start), open, -std::numeric_limits<double>::infinity()).id();
  }

  Attrs attrs() const {
    return {0.0, false, call_.scale};
  }

  ValueId next(Builder& b, ValueId start) const {
    return (Ex(&b, start) + static_cast<double>(rows_)).id();
  }

  // The first result.
  ValueId loop(Graph body, std::vector<ValueId> carried, const std::vector<ValueId>& given, int64_t sliced) {
    const auto num_carried = static_cast<int64_t>(carried.size());
    std::vector<Type> results;
    for (size_t i = 0; i < body.outputs.size(); ++i) {
      Type type = body.type(body.outputs[i]);
      if (i >= carried.size()) {
        Dims all{turns_};
        std::for_each(type.dims.begin(), type.dims.end(), [&](int64_t extent) { all.push_back(extent); });
        type.dims = all;
      }
      results.push_back(type);
    }
    carried.insert(carried.end(), given.begin(), given.end());
    return b_.library(get_op("xla::loop"), carried, {make_computation(std::move(body)), num_carried, sliced, turns_, false}, results);
  }

  Builder b_;
  const Node& node_;
  const Call& call_;
  const int64_t rows_, turns_;
};

class AttentionInTurns : private GraphCopy {
 public:
  AttentionInTurns(const Graph& trace, int64_t most_scores) : GraphCopy(trace), most_scores_(most_scores) {}

  bool finds_any() const {
    return std::any_of(from_.nodes.begin(), from_.nodes.end(), [&](const Node& node) { return find_rows(node) > 0; });
  }

  Graph run() {
    add_inputs();
    for (const Node& node : from_.nodes) {
      if (int64_t rows = find_rows(node)) {
        const Call call = call_of(node);
        Turns turns(graph_, node, call, rows);
        auto operands = map_operands(node);
        const auto results = is_attention(*node.op) ? turns.attend(operands) : turns.attend_backward(operands);
        for (size_t i = 0; i < results.size(); ++i) {
          mapped_[node.result(static_cast<int32_t>(i))] = results[i];
        }
      } else {
        copy(node);
      }
    }
    return take_graph();
  }

 private:
  Call call_of(const Node& node) const {
    const size_t first = is_attention(*node.op) ? 0 : 1;
    const Type& query = from_.type(node.operands[first]);
    return {query.dtype, query.dims, from_.type(node.operands[first + 1]).dims[2], std::get<bool>(node.attrs[1]), node.attrs[2]};
  }
  // The rows of a block; 0: the node stays.
  int64_t find_rows(const Node& node) const {
    const bool is_call = is_attention(*node.op) || is_attention_backward(*node.op);
    if (!is_call || node.operands[is_attention(*node.op) ? 3 : 6] != kNoValue) {
      return 0;
    }
    const Call call = call_of(node);
    const bool is_long = call.scores_of_row() * call.q[2] > most_scores_;
    return is_long ? rows_of_block(call, most_scores_) : 0;
  }

  int64_t most_scores_;
};

} // namespace

std::optional<Graph> attention_in_turns(const Graph& trace, int64_t most_scores) {
  AttentionInTurns pass(trace, most_scores);
  return pass.finds_any() ? std::optional(pass.run()) : std::nullopt;
}

} // namespace torch_xla
