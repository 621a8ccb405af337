// One backward walk: all readers of a value come before its own node.
#include "engine/cpu/schedule/pieces.h"

#include <optional>

#include "engine/cpu/schedule/recompute.h"
#include "ir/op.h"

namespace torch_xla::cpu {
namespace {

bool is_reduction(const Node& node) {
  return node.op->kind == OpKind::kPrim && is_reduce(node.op->prim);
}

// Its elements depend on their place in its dims: each cut computes its own.
bool is_iota(const Node& node) {
  return node.op->kind == OpKind::kPrim && node.op->prim == Prim::kIota;
}

bool is_pointwise(const Node& node) {
  return node.op->kind == OpKind::kPrim && !is_reduction(node) && !is_iota(node);
}

} // namespace

ValuesInPieces::ValuesInPieces(const Graph& graph) : uses_(graph.values.size()) {
  std::optional<Recompute> recompute; // few programs want it
  for (ValueId v : graph.outputs) {
    use(v, -1);
  }
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const ValueId result = node->result();
    const Type& type = graph.type(result);
    for (int32_t i = 0; i < node->num_results && !is_pointwise(*node); ++i) {
      Use& use = uses_[node->result(i)];
      use = {.cut = -1, .is_whole = use.is_whole || !is_iota(*node)};
    }
    if (Use& made = uses_[result]; made.is_whole && made.cut >= 0) {
      if (!recompute) {
        recompute.emplace(graph);
      }
      const bool is_stored = !recompute->is_cheap_in(result, type.numel(), false);
      made.is_view = is_stored && type.dims.size() == 1;
      made.cut = is_stored && !made.is_view ? -1 : made.cut;
    }
    for (ValueId v : node->operands) {
      if (v != kNoValue) {
        use_operand(graph, *node, v);
      }
    }
  }
  for (size_t v = 0; v < uses_.size(); ++v) {
    uses_[v].cut = graph.values[v].kind == ValueKind::kResult ? uses_[v].cut : -1;
  }
}

void ValuesInPieces::use_operand(const Graph& graph, const Node& reader, ValueId v) {
  if (is_reduction(reader)) {
    use(v, find_cut_of(graph, reader));
    return;
  }
  const Use made = uses_[reader.result()];
  const bool is_broadcast = graph.type(v).dims != graph.type(reader.result()).dims;
  if (made.cut >= 0 && !is_broadcast) {
    use(v, made.cut);
  }
  if ((made.is_whole && !made.is_view) || is_broadcast) {
    use(v, -1);
  }
}

// Memory orders are not known yet: computed values mostly have the order of their dims.
int32_t ValuesInPieces::find_cut_of(const Graph& graph, const Node& reduction) {
  const Dims& dims = graph.type(reduction.operands[0]).dims;
  const Dims& over = std::get<Dims>(reduction.attrs[0]);
  if (over != Dims{0} || dims[0] == 1) {
    return -1;
  }
  ReductionCut cut = cut_reduction(dims, contiguous_strides(dims), over);
  if (cut.pieces.size() <= dims.size()) { // no cut, or of the only dim
    return -1;
  }
  for (size_t i = 0; i < cuts_.size(); ++i) {
    if (cuts_[i].pieces == cut.pieces) {
      return static_cast<int32_t>(i);
    }
  }
  cuts_.push_back(std::move(cut));
  return static_cast<int32_t>(cuts_.size()) - 1;
}

// Notes a read in the pieces of a cut, or of the whole. If two cuts differ, the whole is cut twice.
void ValuesInPieces::use(ValueId v, int32_t cut) {
  Use& own = uses_[v];
  if (cut < 0 || (own.cut >= 0 && own.cut != cut)) {
    own.is_whole = true;
  } else {
    own.cut = cut;
  }
}

} // namespace torch_xla::cpu
