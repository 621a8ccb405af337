// Call: the arguments of a library row's writer, and the tables of these writers, one file per family.
#pragma once

#include <span>

#include "ops/rules.h"
#include "stablehlo/hlo.h"

namespace torch_xla::stablehlo {

// The attribute readers of the row's shape rule, with operands and results as values of the text.
class Call : public InferContext {
 public:
  // `read`: by value of the graph, whether a node or an output reads it.
  Call(Text& text, const Graph& graph, const Node& node, Hlos operands, const std::vector<bool>& read)
      : InferContext(graph, {node.operands.data(), node.operands.size()}, node.attrs),
        text_(text),
        graph_(graph),
        node_(node),
        operands_(std::move(operands)),
        read_(read),
        results_(static_cast<size_t>(node.num_results)) {}

  Text& text() {
    return text_;
  }
  // Operand i, which must be given.
  const Hlo& operator[](size_t i) const {
    return operands_[i];
  }
  // Operand i, in float32 if it is a 16-bit float.
  Hlo computed(size_t i) const {
    return convert(operands_[i], compute_type(operands_[i].dtype()));
  }
  size_t num_results() const {
    return results_.size();
  }
  const Type& result_type(size_t i) const {
    return graph_.type(node_.result(static_cast<int32_t>(i)));
  }
  bool is_wanted(size_t i) const {
    return result_type(i).dtype != DType::Undefined;
  }
  // Whether result i must be set: nothing reads the others.
  bool is_read(size_t i) const {
    return is_wanted(i) && read_[node_.result(static_cast<int32_t>(i))];
  }
  // Result i: converted to its type, and broadcast or reshaped (same number of elements) to its dims.
  void set(size_t i, Hlo value) {
    const Type& want = result_type(i);
    if (is_wanted(i)) {
      value = convert(value, want.dtype);
      results_[i] = value.type().numel() == want.numel() ? reshape(value, want.dims) : broadcast(value, want.dims);
    }
  }
  const Hlos& results() const {
    return results_;
  }
  // Whether operand i counts up: 0, 1, 2 ...
  bool counts_up(size_t i) const {
    const Node* producer = graph_.find_producer(node_.operands[i]);
    return producer && producer->op->kind == OpKind::kPrim && producer->op->prim == Prim::kIota && operands_[i].rank() == 1;
  }
  // Attribute i, a dim of a value of that rank; None is the last dim.
  size_t get_dim(size_t i, size_t rank) const {
    return static_cast<size_t>(wrap_dim(get_int(i, -1), rank));
  }

 private:
  Text& text_;
  const Graph& graph_;
  const Node& node_;
  Hlos operands_;
  const std::vector<bool>& read_;
  Hlos results_;
};

struct Writer {
  const char* row; // name in the op tables
  void (*write)(Call& call);
};

std::span<const Writer> matmul_writers();
std::span<const Writer> conv_writers();
std::span<const Writer> pool_writers();
std::span<const Writer> resize_writers(); // interpolation, padding, adaptive average pools, columns
std::span<const Writer> index_writers();
std::span<const Writer> scatter_writers();
std::span<const Writer> order_writers();
std::span<const Writer> join_writers();
std::span<const Writer> grid_writers();
std::span<const Writer> function_writers(); // of one number
std::span<const Writer> rnn_writers();
std::span<const Writer> identity_writers(); // reinterpreted bytes, checks
std::span<const Writer> control_writers();
std::span<const Writer> composite_writers();
std::span<const Writer> shard_writers(); // of take_shard and join_shards in texts without regions, and of collectives in regions

// Writes a computation's graph (a trace) into the text; its results for these parameters and scalars.
Hlos write_computation(Text& text, const Graph& body, const Hlos& arguments);

} // namespace torch_xla::stablehlo
