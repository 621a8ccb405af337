// Sums of tensors that are zero but for a part: only the part is added. The gradient of x[:, t] is such a tensor; a loop over t would
// fill and add as many tensors of x's size as it has turns.
#include <algorithm>
#include <map>

#include "ir/view.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

// A value that is zero but for what was written into a box of it.
struct Written {
  Dims base_strides; // in which the boxes are meant
  ViewBox box;
};

class Adder {
 public:
  explicit Adder(const Graph& trace) : trace_(trace), uses_(trace.values.size()), mapped_(trace.values.size(), kNoValue) {
    live_ = find_live_nodes(trace);
    for (size_t i = 0; i < trace.nodes.size(); ++i) {
      for (ValueId v : trace.nodes[i].operands) {
        if (live_[i] && v != kNoValue) {
          ++uses_[v];
        }
      }
    }
    for (ValueId v : trace.outputs) {
      ++uses_[v];
    }
  }

  bool finds_any() const {
    return std::any_of(trace_.nodes.begin(), trace_.nodes.end(), [&](const Node& node) { return find_part(node) >= 0; });
  }

  Graph run() {
    for (size_t i = 0; i < trace_.parameters.size(); ++i) {
      mapped_[trace_.parameters[i]] = graph_.add_parameter(trace_.type(trace_.parameters[i]), trace_.parameter_strides[i]);
    }
    for (ValueId v : trace_.scalars) {
      mapped_[v] = graph_.add_scalar(trace_.type(v).dtype);
    }
    for (size_t i = 0; i < trace_.nodes.size(); ++i) {
      if (live_[i]) {
        add_node(trace_.nodes[i]);
      }
    }
    for (ValueId v : trace_.outputs) {
      graph_.outputs.push_back(mapped_[v]);
    }
    graph_.output_strides = trace_.output_strides;
    return std::move(graph_);
  }

 private:
  // A part of zeros.
  bool is_part(const Node* node) const {
    const Node* base = node && node->op->kind == OpKind::kViewUpdate ? trace_.find_producer(node->operands[0]) : nullptr;
    return base && (base->op->traits & kZeros) && shows_each_once(view_geometry(trace_, *node));
  }

  // Nested strides: each is longer than all shorter ones reach.
  static bool shows_each_once(const ViewGeometry& view) {
    std::vector<std::pair<int64_t, int64_t>> steps;
    for (size_t d = 0; d < view.dims.size(); ++d) {
      if (view.dims[d] > 1) {
        steps.emplace_back(view.strides[d], view.dims[d]);
      }
    }
    std::sort(steps.begin(), steps.end());
    int64_t reached = 0;
    for (auto [stride, extent] : steps) {
      if (stride <= reached) {
        return false;
      }
      reached += stride * (extent - 1);
    }
    return true;
  }

  // The operand of a sum of two tensors that is a part which nobody else reads; -1: none.
  int find_part(const Node& node) const {
    if (!(node.op->traits & kAdds) || node.operands.size() != 2) {
      return -1;
    }
    for (int i : {1, 0}) {
      ValueId v = node.operands[i];
      bool same = trace_.type(v) == trace_.type(node.result()) && trace_.type(node.operands[1 - i]) == trace_.type(v);
      if (same && uses_[v] == 1 && is_part(trace_.find_producer(v))) {
        return i;
      }
    }
    return -1;
  }

  void add_node(const Node& node) {
    if (int part = find_part(node); part >= 0) {
      mapped_[node.result()] = add_into(node, node.operands[1 - part], *trace_.find_producer(node.operands[part]));
      return;
    }
    std::vector<Type> types;
    for (int32_t i = 0; i < node.num_results; ++i) {
      types.push_back(trace_.type(node.result(i)));
    }
    ValueId first = graph_.add_node(*node.op, map_operands(node), node.attrs, types, node.location);
    for (int32_t i = 0; i < node.num_results; ++i) {
      mapped_[node.result(i)] = first + i;
    }
    if (is_part(&node)) {
      note_written(node.result(), view_geometry(trace_, node), nullptr);
    }
  }

  InlineVec<ValueId, 4> map_operands(const Node& node) const {
    InlineVec<ValueId, 4> operands;
    for (ValueId v : node.operands) {
      operands.push_back(v == kNoValue ? kNoValue : mapped_[v]);
    }
    return operands;
  }

  // `sum` = whole + part, as an update of the whole. Where the whole is zero nothing needs to be added.
  ValueId add_into(const Node& sum, ValueId whole, const Node& part) {
    ViewGeometry view = view_geometry(trace_, part);
    const Type type = trace_.type(part.operands[1]);
    ValueId update = mapped_[part.operands[1]];
    auto written = written_.find(whole);
    if (written == written_.end() || !note_written(sum.result(), view, &written->second)) {
      view.moved_by = view.moved_by == kNoValue ? kNoValue : mapped_[view.moved_by];
      ValueId before = append(kViewOp, view_operands(view, mapped_[whole]), view_attrs(view), type, sum);
      update = append(*sum.op, {before, update}, sum.attrs, type, sum);
    }
    InlineVec<ValueId, 4> operands = map_operands(part);
    operands[0] = mapped_[whole];
    operands[1] = update;
    return append(*part.op, std::move(operands), part.attrs, trace_.type(whole), sum);
  }

  ValueId append(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, const Type& type, const Node& from) {
    return graph_.add_node(op, std::move(operands), std::move(attrs), std::span<const Type>(&type, 1), from.location);
  }

  // That v is zero but for the view and what was written before. False where the two may meet, or it is not known.
  bool note_written(ValueId v, const ViewGeometry& view, const Written* before) {
    std::optional<ViewBox> box = view_box(view);
    if (!box || (before && (before->base_strides != view.base_strides || !are_apart(before->box, *box)))) {
      return false;
    }
    written_[v] = {view.base_strides, before ? box_of_both(before->box, *box) : *box};
    return true;
  }

  const Graph& trace_;
  std::vector<bool> live_;
  std::vector<int> uses_; // by value
  std::map<ValueId, Written> written_; // by value of the trace
  std::vector<ValueId> mapped_; // by value of the trace: the same value in the new graph
  Graph graph_;
};

} // namespace

std::optional<Graph> add_into_parts(const Graph& trace) {
  Adder adder(trace);
  return adder.finds_any() ? std::optional(adder.run()) : std::nullopt;
}

} // namespace torch_xla
