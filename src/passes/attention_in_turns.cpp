// Attention in turns: long sequences take a loop over blocks of queries, whose scores fit the device's own memory. All scores at once would
// be written and read several times, and exceed the memory for long ones.
#include <algorithm>
#include <limits>

#include "ir/builder.h"
#include "ir/computation.h"
#include "ops/registry.h"
#include "ops/tables.h"
#include "passes/graph_copy.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

constexpr int64_t kFewestRows = 16; // of a block

// One call: operands of 4 dims without a mask.
struct Call {
  const Op* op;
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

// Appends nodes to a graph: the call itself, or a loop around it.
class Turns {
 public:
  Turns(Graph& graph, int32_t location) : builder_(graph) {
    builder_.set_location(location);
  }

  // The values behind a barrier, in their order. libtpu makes one kernel of the first product and the softmax only if it does not pull the
  // computation of the product's operands into it, and would compute keys that heads share in each turn.
  static ValueId set_apart(Builder& b, const std::vector<ValueId>& values) {
    std::vector<Type> types;
    for (ValueId v : values) {
      types.push_back(b.type(v));
    }
    return b.library(get_op("xla::optimization_barrier"), values, {static_cast<int64_t>(values.size())}, types);
  }

  // Parameters of a body: the first query of the block, the block, keys, values.
  static ComputationRef block_body(const Call& call, int64_t rows, const Type& query, const Type& key) {
    Graph body;
    ValueId start = body.add_parameter({DType::I32, {}});
    ValueId block = body.add_parameter(query);
    ValueId keys = body.add_parameter(key);
    ValueId values = body.add_parameter(key);
    Builder b(body);
    ValueId apart = set_apart(b, {block, keys});
    InlineVec<ValueId, 4> operands{apart, apart + 1, values, kNoValue};
    if (call.causal) {
      Ex row(&b, b.iota({rows, call.keys}, 0, DType::I32));
      Ex column(&b, b.iota({rows, call.keys}, 1, DType::I32));
      Ex open(&b, b.constant(0, query.dtype)); // ATen's kernel takes a mask of the query's type
      operands[3] = select(column <= row + Ex(&b, start), open, -std::numeric_limits<double>::infinity()).id();
    }
    const Dims& d = query.dims;
    const Type results[] = {query, {query.dtype == DType::F64 ? DType::F64 : DType::F32, {d[0], d[1], d[2]}}};
    ValueId first = body.add_node(*call.op, std::move(operands), {0.0, false, call.scale}, results);
    body.outputs = {(Ex(&b, start) + static_cast<double>(rows)).id(), first, first + 1};
    return make_computation(std::move(body));
  }

  // Blocks of queries: the output and the logarithms of the sums.
  std::pair<ValueId, ValueId> attend(const Call& call, int64_t rows, ValueId q, ValueId k, ValueId v) {
    const Dims& d = call.q;
    const int64_t turns = d[2] / rows;
    ValueId blocks = builder_.permute(builder_.reshape(q, {d[0], d[1], turns, rows, d[3]}), {2, 0, 1, 3, 4});
    ComputationRef body = block_body(call, rows, {builder_.type(q).dtype, {d[0], d[1], rows, d[3]}}, builder_.type(k));
    ValueId apart = set_apart(builder_, {blocks, k, v});
    const ValueId operands[] = {builder_.constant_int(0, DType::I32), apart, apart + 1, apart + 2};
    const Type results[] = {
        {DType::I32, {}}, builder_.type(blocks), {body->graph.type(body->graph.outputs[2]).dtype, {turns, d[0], d[1], rows}}};
    ValueId first = builder_.library(get_op("xla::loop"), operands, {body, int64_t{1}, int64_t{1}, turns, false}, results);
    ValueId output = builder_.reshape(builder_.permute(first + 1, {1, 2, 0, 3, 4}), d);
    ValueId sums = builder_.reshape(builder_.permute(first + 2, {1, 2, 0, 3}), {d[0], d[1], d[2]});
    return {output, sums};
  }

 private:
  Builder builder_;
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
        Turns turns(graph_, node.location);
        auto operands = map_operands(node);
        auto [output, sums] = turns.attend(call_of(node), rows, operands[0], operands[1], operands[2]);
        mapped_[node.result(0)] = output;
        mapped_[node.result(1)] = sums;
      } else {
        copy(node);
      }
    }
    return take_graph();
  }

 private:
  Call call_of(const Node& node) const {
    return {node.op, from_.type(node.operands[0]).dims, from_.type(node.operands[1]).dims[2], std::get<bool>(node.attrs[1]), node.attrs[2]};
  }
  // The rows of a block; 0: the node stays.
  int64_t find_rows(const Node& node) const {
    if (!is_attention(*node.op) || node.operands[3] != kNoValue) {
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
