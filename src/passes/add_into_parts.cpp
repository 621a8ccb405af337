// Sums with tensors that are zero except in a part: only the part is added. The gradient of x[:, t] is such a tensor; a loop over t would
// fill and add a tensor of x's size in each turn.
#include <algorithm>
#include <map>

#include "ir/view.h"
#include "passes/graph_copy.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

// A value that is zero except in a box that was written.
struct Written {
  Dims base_strides; // strides of the boxes
  ViewBox box;
};

class Adder : private GraphCopy {
 public:
  explicit Adder(const Graph& trace) : GraphCopy(trace), live_(find_live_nodes(trace)), uses_(count_uses(trace, live_)) {}

  bool finds_any() const {
    return std::any_of(from_.nodes.begin(), from_.nodes.end(), [&](const Node& node) { return find_part(node) >= 0; });
  }

  Graph run() {
    add_inputs();
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      if (live_[i]) {
        add_node(from_.nodes[i]);
      }
    }
    return take_graph();
  }

 private:
  // Whether the node writes a part of zeros.
  bool is_part(const Node* node) const {
    const Node* base = node && node->op->kind == OpKind::kViewUpdate ? from_.find_producer(node->operands[0]) : nullptr;
    if (!base || base->op->prim != Prim::kConstant) {
      return false;
    }
    const ViewGeometry view = view_geometry(from_, *node);
    return shows_each_once(view.dims, view.strides);
  }

  // The operand of a sum of two tensors that is a part without other readers; -1: none.
  int find_part(const Node& node) const {
    if (node.op->prim != Prim::kAdd || node.operands.size() != 2) {
      return -1;
    }
    for (int i : {1, 0}) {
      ValueId v = node.operands[i];
      bool same = from_.type(v) == from_.type(node.result()) && from_.type(node.operands[1 - i]) == from_.type(v);
      if (same && uses_[v] == 1 && is_part(from_.find_producer(v))) {
        return i;
      }
    }
    return -1;
  }

  void add_node(const Node& node) {
    if (int part = find_part(node); part >= 0) {
      mapped_[node.result()] = add_into(node, node.operands[1 - part], *from_.find_producer(node.operands[part]));
      return;
    }
    copy(node);
    if (is_part(&node)) {
      note_written(node.result(), view_geometry(from_, node), nullptr);
    }
  }

  // `sum` = whole + part, as an update of the whole. If the whole is zero nothing needs to be added.
  ValueId add_into(const Node& sum, ValueId whole, const Node& part) {
    ViewGeometry view = view_geometry(from_, part);
    const Type type = from_.type(part.operands[1]);
    ValueId update = mapped_[part.operands[1]];
    auto written = written_.find(whole);
    if (written == written_.end() || !note_written(sum.result(), view, &written->second)) {
      ValueId before = add_view(kViewOp, view, mapped_[whole], sum.location);
      update = append(*sum.op, {before, update}, sum.attrs, type, sum);
    }
    InlineVec<ValueId, 4> operands = map_operands(part);
    operands[0] = mapped_[whole];
    operands[1] = update;
    return append(*part.op, std::move(operands), part.attrs, from_.type(whole), sum);
  }

  ValueId append(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, const Type& type, const Node& from) {
    return graph_.add_node(op, std::move(operands), std::move(attrs), std::span<const Type>(&type, 1), from.location);
  }

  // Notes that v is zero except in the view and the parts written before. False if the two may overlap, or if that is unknown.
  bool note_written(ValueId v, const ViewGeometry& view, const Written* before) {
    std::optional<ViewBox> box = view_box(view);
    if (!box || (before && (before->base_strides != view.base_strides || !are_apart(before->box, *box)))) {
      return false;
    }
    written_[v] = {view.base_strides, before ? box_of_both(before->box, *box) : *box};
    return true;
  }

  std::vector<bool> live_;
  std::vector<int> uses_; // by value
  std::map<ValueId, Written> written_; // by value of the trace
};

} // namespace

std::optional<Graph> add_into_parts(const Graph& trace) {
  Adder adder(trace);
  return adder.finds_any() ? std::optional(adder.run()) : std::nullopt;
}

} // namespace torch_xla
