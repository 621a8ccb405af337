// Graph: nodes in topological order over typed values. A trace is a graph of ATen rows; lowering turns it into one of primitives and
// library calls.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attr.h"
#include "ir/op.h"
#include "ir/sharding.h"
#include "ir/type.h"

namespace torch_xla {

using ValueId = int32_t;
constexpr ValueId kNoValue = -1; // an optional operand that is None

enum class ValueKind : uint8_t {
  kResult, // index = node
  kParameter, // index = position among Graph::parameters; memory that exists before the run
  kScalar, // index = position among Graph::scalars; a number given at each run. dims are empty; dtype F64, I64 or Bool
};

struct Value {
  Type type;
  ValueKind kind = ValueKind::kResult;
  int32_t index = 0;
};

struct Node {
  const Op* op = nullptr;
  InlineVec<ValueId, 4> operands;
  Attrs attrs;
  ValueId first_result = 0;
  int32_t num_results = 1;
  int32_t location = -1; // index into the recorder's table of source lines; no part of any key

  ValueId result(int32_t i = 0) const {
    return first_result + i;
  }
};

// Attributes of kView and kViewUpdate, by position. The operand (for kViewUpdate: operand 0) is seen as memory with base_strides; the view
// has the node's result dims (kViewUpdate: operand 1's dims) with strides and offset on that memory, in elements. A moving view has one
// more operand: a number of the program, i64, added to the offset. It stays within the operand for each number that a run gives.
enum ViewAttr { kViewBaseStrides = 0, kViewStrides = 1, kViewOffset = 2 };

class Graph {
 public:
  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<ValueId> parameters;
  std::vector<ValueId> scalars;
  // In a trace: the scalars that are the same in each run (bits of a double or int64), which lowering makes constants. Parallel to scalars,
  // or empty: none.
  std::vector<std::optional<uint64_t>> fixed_scalars;
  std::vector<ValueId> outputs;
  // Strides of parameters, in elements; empty Dims: row-major contiguous. Parallel to parameters.
  std::vector<Dims> parameter_strides;
  // How parameters lie on the devices of a program that runs over several. Parallel to parameters.
  std::vector<ShardingRef> parameter_shardings;
  // Strides of outputs, for engines with Engine::orders_outputs(). Parallel to outputs, or empty if all are row-major.
  std::vector<Dims> output_strides;

  ValueId add_parameter(Type type, Dims strides = {}, ShardingRef sharding = nullptr);
  ValueId add_scalar(DType dtype);
  // Appends a node; its results get consecutive ids. Returns the first result. Throws UserError, and leaves the graph as it was, if a
  // result's size in bytes overflows.
  ValueId add_node(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, std::span<const Type> results, int32_t location = -1);

  const Type& type(ValueId v) const {
    return values[v].type;
  }
  // The node that makes v, or null for parameters, scalars and kNoValue.
  const Node* find_producer(ValueId v) const {
    return v != kNoValue && values[v].kind == ValueKind::kResult ? &nodes[values[v].index] : nullptr;
  }
  // Reserves memory for about that many, for a pass that builds a graph from another one.
  void reserve(size_t num_nodes, size_t num_values);
  // Strides of outputs[i]; empty for row-major.
  Dims strides_of_output(size_t i) const {
    return output_strides.empty() ? Dims() : output_strides[i];
  }
  // The bits of scalars[i], if it is fixed.
  std::optional<uint64_t> fixed_scalar(size_t i) const {
    return fixed_scalars.empty() ? std::nullopt : fixed_scalars[i];
  }
  void clear();
};

// The bits of a scalar as the attribute of a constant.
Attr number_attr(DType dtype, uint64_t bits);

// Text form, one node a line:
//   graph(%0: f32[64,10], %1: f64 scalar) {
//     %2: f32[64,10] = aten::add.Tensor(%0, %0, %1)
//     return %2
//   }
std::string print_graph(const Graph& graph);
// Inverse of print_graph, with the rows that the look-up knows (null: none of this name). Throws UserError(Value) naming line and column.
using FindOp = const Op* (*)(std::string_view name);
Graph parse_graph(const std::string& text, FindOp find_op);
// Throws InternalError naming the first node that breaks a rule: operands defined before use, result types as the op's rule says,
// attributes of views of the right kinds, outputs in range.
void verify_graph(const Graph& graph);

// For each node: whether an output or another replica needs it.
std::vector<bool> find_live_nodes(const Graph& graph);
// For each value: how often live nodes and outputs read it.
std::vector<int> count_uses(const Graph& graph, const std::vector<bool>& live);

// The row of a primitive; kernel-only ones have none.
const Op& prim_op(Prim prim);
extern const Op kViewOp; // "view"
extern const Op kViewUpdateOp; // "view_update"
std::vector<const Op*> builtin_ops(); // of all primitives and views; ops/ has the rows of ATen's operations

} // namespace torch_xla
