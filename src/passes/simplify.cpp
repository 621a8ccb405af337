// Local rewrites, one walk in order: each node sees operands that are already simplified.
#include <cmath>

#include "ir/view.h"
#include "passes/fold.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

// True when each value of `from` is a value of `to`.
bool is_lossless(DType from, DType to) {
  if (!is_native(from) || !is_native(to)) {
    return from == to;
  }
  if (from == to || from == DType::Bool) {
    return true;
  }
  if (is_float(from)) {
    return (is_reduced_float(from) && to == DType::F32) || to == DType::F64;
  }
  bool has_sign = from == DType::U8 || to != DType::U8;
  return to != DType::Bool && has_sign && significant_bits(from) <= significant_bits(to);
}

// True if a conversion to `via` in between changes nothing. False if the direct conversion has other rules than the one from `via` (out of
// range, rounding twice to a 16-bit float).
bool is_free_detour(DType from, DType via, DType to) {
  if (!is_lossless(from, via)) {
    return false;
  }
  if (from == via || is_lossless(from, to)) {
    return true;
  }
  if (is_integral(from, true) != is_integral(via, true)) {
    return to == DType::F32;
  }
  return is_integral(via, true) ? !is_reduced_float(to) : is_float(to);
}

bool is_number(const Attr* attr, double wanted) {
  if (!attr) {
    return false;
  }
  if (auto* v = std::get_if<double>(attr)) {
    return *v == wanted;
  }
  return static_cast<double>(std::get<int64_t>(*attr)) == wanted;
}

// A zero that leaves x as it is when added: integer 0 or -0.0, as 0.0 turns -0.0 into 0.0.
bool is_zero_of_sign(const Attr* attr, bool negative) {
  auto* v = attr ? std::get_if<double>(attr) : nullptr;
  return is_number(attr, 0) && (!v || std::signbit(*v) == negative);
}

class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : graph_(graph), same_(graph.values.size()) {
    for (size_t v = 0; v < same_.size(); ++v) {
      same_[v] = static_cast<ValueId>(v);
    }
  }

  void run() {
    for (Node& node : graph_.nodes) {
      for (ValueId& v : node.operands) {
        v = v == kNoValue ? kNoValue : same_[v];
      }
      simplify_node(node);
    }
    for (ValueId& v : graph_.outputs) {
      v = same_[v];
    }
  }

 private:
  // The result is the value v if the types agree; else the node stays.
  void replace(const Node& node, ValueId v) {
    if (graph_.type(v) == graph_.type(node.first_result)) {
      same_[node.first_result] = v;
    }
  }
  void simplify_node(Node& node) {
    if (node.op->kind == OpKind::kView) {
      return simplify_view(node);
    }
    if (node.op->kind != OpKind::kPrim) {
      return;
    }
    if (std::optional<Attr> value = fold_node(graph_, node)) {
      node.op = &prim_op(Prim::kConstant);
      node.operands.clear();
      node.attrs = {*value};
      return;
    }
    simplify_prim(node);
  }
  void simplify_prim(Node& node) {
    switch (node.op->prim) {
      case Prim::kConvert:
        return simplify_convert(node);
      case Prim::kSelect:
        return simplify_select(node);
      case Prim::kNeg:
      case Prim::kNot:
        return simplify_involution(node);
      default:
        if (is_binary(node.op->prim)) {
          simplify_binary(node);
        }
    }
  }
  // The node that makes v, if it is of the given primitive.
  const Node* find_prim(ValueId v, Prim prim) const {
    const Node* node = graph_.find_producer(v);
    return node && node->op->kind == OpKind::kPrim && node->op->prim == prim ? node : nullptr;
  }
  void simplify_involution(const Node& node) {
    if (const Node* inner = find_prim(node.operands[0], node.op->prim)) {
      replace(node, inner->operands[0]);
    }
  }
  void simplify_convert(Node& node) {
    DType to = graph_.type(node.first_result).dtype;
    if (const Node* inner = find_prim(node.operands[0], Prim::kConvert)) {
      const Type& from = graph_.type(inner->operands[0]);
      DType via = graph_.type(node.operands[0]).dtype;
      // A node converts or broadcasts, never both.
      bool is_one_step = from.dtype == to || from.dims == graph_.type(node.first_result).dims;
      if (is_one_step && is_free_detour(from.dtype, via, to)) {
        node.operands[0] = inner->operands[0];
      }
    }
    replace(node, node.operands[0]);
  }
  void simplify_select(const Node& node) {
    if (const Attr* pred = find_constant(graph_, node.operands[0])) {
      replace(node, is_number(pred, 0) ? node.operands[2] : node.operands[1]);
    } else if (node.operands[1] == node.operands[2]) {
      replace(node, node.operands[1]);
    }
  }
  void simplify_binary(const Node& node) {
    if (is_neutral(node.op->prim, find_constant(graph_, node.operands[1]))) {
      replace(node, node.operands[0]);
    } else if (is_commutative(node.op->prim) && is_neutral(node.op->prim, find_constant(graph_, node.operands[0]))) {
      replace(node, node.operands[1]);
    }
  }
  static bool is_commutative(Prim prim) {
    return prim == Prim::kMul || prim == Prim::kAdd;
  }
  // True when (x prim right) is x for every x.
  static bool is_neutral(Prim prim, const Attr* right) {
    switch (prim) {
      case Prim::kMul:
      case Prim::kDiv:
        return is_number(right, 1);
      case Prim::kAdd:
        return is_zero_of_sign(right, true);
      case Prim::kSub:
        return is_zero_of_sign(right, false);
      default:
        return false;
    }
  }

  // ---- Views ----
  void simplify_view(Node& node) {
    if (make_broadcast(node)) {
      return simplify_convert(node);
    }
    ViewGeometry view = view_geometry(graph_, node);
    const Node* inner = graph_.find_producer(node.operands[0]);
    if (inner && inner->op->kind == OpKind::kView) {
      if (std::optional<ViewGeometry> composed = compose_views(view_geometry(graph_, *inner), view)) {
        view = *composed;
        node.operands = view_operands(view, inner->operands[0]);
        node.attrs = view_attrs(view);
      }
    }
    if (is_identity(view)) {
      replace(node, node.operands[0]);
    }
  }
  // A view of one value repeated is that value repeated. False where the operand is anything else.
  bool make_broadcast(Node& node) {
    ValueId source = node.operands[0];
    const Node* inner = find_prim(source, Prim::kConvert);
    bool repeats = inner && graph_.type(inner->operands[0]) == Type{graph_.type(source).dtype, {}};
    source = repeats ? inner->operands[0] : source;
    if (!graph_.type(source).dims.empty()) {
      return false;
    }
    node.op = &prim_op(Prim::kConvert);
    node.operands = {source};
    node.attrs.clear();
    return true;
  }

  Graph& graph_;
  std::vector<ValueId> same_; // by value: its replacement
};

} // namespace

void simplify(Graph& graph) {
  Simplifier(graph).run();
}

} // namespace torch_xla
