// Convolutions of inference with what follows them in one call: batch norm, a sum with a tensor, an activation.
#include <algorithm>
#include <array>
#include <string>

#include "ops/registry.h"
#include "ops/tables.h"
#include "passes/graph_copy.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

class Fusion : private GraphCopy {
 public:
  Fusion(const Graph& trace, FuseConvolution fuses)
      : GraphCopy(trace), fuses_(fuses), live_(find_live_nodes(trace)), uses_(count_uses(trace, live_)), chain_of_(trace.nodes.size(), -1) {
    auto is_gradient = [](const Node& node) { return is_convolution_backward(*node.op); };
    std::copy_if(trace.nodes.begin(), trace.nodes.end(), std::back_inserter(gradients_), is_gradient);
  }

  Graph run() {
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      if (live_[i]) {
        chain_of_[i] = find_chain(i);
      }
    }
    add_inputs();
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      const int chain = chain_of_[i];
      if (chain >= 0 && chains_[chain].last == i) {
        add(chains_[chain]);
      } else if (chain < 0 && live_[i]) {
        copy(from_.nodes[i]);
      }
    }
    return take_graph();
  }

 private:
  // A convolution and what its call computes too, in this order.
  struct Chain {
    const Node* convolution;
    size_t last; // node
    bool takes_sum;
    const Node* norm = nullptr;
    ValueId added = kNoValue;
    const Node* activation = nullptr;
  };

  // The chain that the node begins or continues; -1: none.
  int find_chain(size_t i) {
    const Node& node = from_.nodes[i];
    const ConvolutionFusion fusion = fuses_(from_, node);
    if (fusion != ConvolutionFusion::kNone && has_stored_weight(node) && !is_trained(node)) {
      chains_.push_back({&node, i, fusion == ConvolutionFusion::kSum});
      return static_cast<int>(chains_.size()) - 1;
    }
    const int chain = find_continued(node);
    if (chain >= 0) {
      chains_[chain].last = i;
    }
    return chain;
  }

  // Whether its weight is a value from outside, or a view of one. One that is computed here cannot be packed once; one that is dequantized
  // here is for integer_convolutions().
  bool has_stored_weight(const Node& convolution) const {
    const Node* node = from_.find_producer(before_conversion(convolution.operands[1]));
    return !node || node->op->kind == OpKind::kView;
  }

  // Whether its gradients are computed here.
  bool is_trained(const Node& convolution) const {
    return std::any_of(gradients_.begin(), gradients_.end(), [&](const Node& gradient) {
      return gradient.operands[1] == convolution.operands[0] && gradient.operands[2] == convolution.operands[1];
    });
  }

  // The chain that the node continues, which then has it; -1: none.
  int find_continued(const Node& node) {
    if (is_sum(node)) {
      return find_continued_by_sum(node);
    }
    const int chain = node.operands.size() > 0 ? find_end(node, 0) : -1;
    if (chain < 0) {
      return -1;
    }
    Chain& c = chains_[chain];
    if (node.op->epilogue && !c.activation && (c.added == kNoValue || node.op->epilogue == std::string_view("relu"))) {
      c.activation = &node;
      return chain;
    }
    if (is_evaluated_norm(node) && !c.norm && c.added == kNoValue && !c.activation) {
      c.norm = &node;
      return chain;
    }
    return -1;
  }

  int find_continued_by_sum(const Node& node) {
    for (size_t i : {0, 1}) {
      const int chain = find_end(node, i);
      const ValueId other = node.operands[1 - i];
      if (chain >= 0 && chains_[chain].takes_sum && chains_[chain].added == kNoValue && !chains_[chain].activation &&
          from_.type(other) == from_.type(node.result())) {
        chains_[chain].added = other;
        return chain;
      }
    }
    return -1;
  }

  static bool is_sum(const Node& node) {
    return node.op->prim == Prim::kAdd && node.operands.size() == 2;
  }

  // The chain whose result is an operand that nothing else reads.
  int find_end(const Node& node, size_t i) const {
    const ValueId v = node.operands[i];
    const bool same = v != kNoValue && from_.type(v) == from_.type(node.result());
    return same && uses_[v] == 1 && from_.find_producer(v) ? chain_of_[from_.values[v].index] : -1;
  }

  bool is_evaluated_norm(const Node& node) const {
    if (!is_batch_norm(*node.op) || std::get<bool>(node.attrs[0])) {
      return false;
    }
    int others = 0;
    for (int32_t i = 1; i < node.num_results; ++i) {
      others += uses_[node.result(i)];
    }
    return others == 0;
  }

  // A float32 weight before its conversion: the call converts it once.
  ValueId before_conversion(ValueId v) const {
    const Node* node = from_.find_producer(v);
    const bool converts = node && is_conversion(*node->op) && from_.type(node->operands[0]).dtype == DType::F32;
    return converts ? node->operands[0] : v;
  }

  void add(const Chain& chain) {
    static const Op& op = get_op("xla::fused_convolution");
    const Node& convolution = *chain.convolution;
    const Node& last = from_.nodes[chain.last];
    auto norm = [&](size_t i) { return chain.norm ? chain.norm->operands[i] : kNoValue; };
    const ValueId read[] = {
        convolution.operands[0],
        before_conversion(convolution.operands[1]),
        before_conversion(convolution.operands[2]),
        norm(3),
        norm(4),
        norm(1),
        norm(2),
        chain.added};
    InlineVec<ValueId, 4> operands;
    for (ValueId v : read) {
      operands.push_back(map_operand(v));
    }
    Attrs attrs = convolution.attrs;
    attrs.push_back(chain.norm ? chain.norm->attrs[2] : Attr(0.0));
    attrs.push_back(std::string(chain.activation ? chain.activation->op->epilogue : "none"));
    attrs.push_back(chain.activation && !chain.activation->attrs.empty() ? chain.activation->attrs[0] : Attr(std::string()));
    const std::array<Type, 1> types{from_.type(last.result())};
    mapped_[last.result()] = graph_.add_node(op, std::move(operands), std::move(attrs), types, convolution.location);
  }

  const FuseConvolution fuses_;
  const std::vector<bool> live_;
  const std::vector<int> uses_; // by value
  std::vector<Chain> chains_;
  std::vector<int> chain_of_; // by node; -1: none
  std::vector<Node> gradients_;
};

} // namespace

std::optional<Graph> fuse_convolutions(const Graph& trace, FuseConvolution fuses) {
  const bool any =
      std::any_of(trace.nodes.begin(), trace.nodes.end(), [&](const Node& node) { return fuses(trace, node) != ConvolutionFusion::kNone; });
  return any ? std::optional(Fusion(trace, fuses).run()) : std::nullopt;
}

} // namespace torch_xla
