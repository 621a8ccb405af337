// The rules of a layout: every value lies in its root, at its node's place, in an order that kernels of library calls can read.
#include <algorithm>

#include "engine/cpu/schedule/verifier.h"
#include "engine/cpu/schedule/verify.h"
#include "ir/view.h"

namespace torch_xla::cpu {
namespace {

class LayoutVerifier : private Verifier {
 public:
  LayoutVerifier(const Schedule& schedule, const char* stage) : Verifier(stage, schedule) {}

  void run() {
    verify_graph(graph_);
    check(places_.size() == graph_.values.size(), places_.size(), " places for ", graph_.values.size(), " values");
    for (ValueId v = 0; v < static_cast<ValueId>(graph_.values.size()); ++v) {
      check_place(v);
    }
    for (const Node& node : graph_.nodes) {
      check_node(node);
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      check_output(graph_.outputs[i], order_of_output(graph_, i));
    }
  }

 private:
  void check_place(ValueId v) {
    const Place& place = places_[v];
    const Type& type = graph_.type(v);
    enter("%", v);
    check(place.root >= 0 && place.root < static_cast<ValueId>(places_.size()), "its root is no value");
    const Place& whole = places_[place.root];
    check(root(place.root) == place.root && whole.offset == 0 && whole.moved_by < 0, "its root %", place.root, " has a root");
    check(graph_.type(place.root).dtype == type.dtype, "its root %", place.root, " has another element type");
    check(place.strides.size() == type.dims.size(), place.strides.size(), " strides for ", type.dims.size(), " dims");
    bool negative = place.offset < 0 || std::any_of(place.strides.begin(), place.strides.end(), [](int64_t s) { return s < 0; });
    check(!negative, "a negative offset or stride");
    int64_t end = place.offset + span(v);
    bool inside = type.numel() == 0 || end <= span(place.root);
    check(inside, "lies at ", place.offset, " to ", end, " of its root %", place.root, ", which has ", span(place.root), " elements");
    check_parameter(v);
  }

  void check_parameter(ValueId v) const {
    if (is(v, ValueKind::kParameter)) {
      const Dims& given = graph_.parameter_strides[graph_.values[v].index];
      const Dims& dims = graph_.type(v).dims;
      check(same_strides(dims, places_[v].strides, given.empty() ? contiguous_strides(dims) : given), "other strides than the caller's");
    }
  }

  void check_node(const Node& node) {
    enter("%", node.result());
    if (node.op->kind == OpKind::kView) {
      return check_view(node);
    }
    for (int32_t i = 0; i < node.num_results; ++i) {
      check(root(node.result(i)) == node.result(i), "is no view, but lies in %", root(node.result(i)));
    }
    if (node.op->kind == OpKind::kViewUpdate) {
      check_update(node);
    } else if (node.op->kind == OpKind::kLibrary) {
      check_call(node);
    }
  }

  void check_in_memory(ValueId v) const {
    check(!is(v, ValueKind::kScalar), "reads the memory of %", v, ", which is a number");
  }

  void check_view(const Node& node) const {
    ViewGeometry view = view_geometry(graph_, node);
    const Place& base = places_[node.operands[0]];
    const Place& place = places_[node.result()];
    check_in_memory(node.operands[0]);
    check(place.root == base.root, "lies in %", place.root, ", its operand in %", base.root);
    check(same_strides(view.base_dims, view.base_strides, base.strides), "has other base strides than its operand");
    bool there = place.offset == base.offset + view.offset && same_strides(view.dims, view.strides, place.strides);
    check(there, "does not lie where its node says");
    bool moves = view.moved_by != kNoValue;
    check(!moves || base.moved_by < 0, "is moved by two numbers");
    check(place.moved_by == (moves ? graph_.values[view.moved_by].index : base.moved_by), "is moved by another number than its node says");
  }

  // In place, the result is the operand's memory.
  void check_update(const Node& node) const {
    ViewGeometry view = view_geometry(graph_, node);
    ValueId base = node.operands[0];
    check_in_memory(base);
    check_in_memory(node.operands[1]);
    check(root(base) == base, "updates %", base, ", which is a part of %", root(base));
    check(same_strides(view.base_dims, view.base_strides, places_[base].strides), "has other base strides than its operand");
    check(same_strides(view.base_dims, places_[node.result()].strides, places_[base].strides), "has other strides than its base");
  }

  void check_call(const Node& node) const {
    for (ValueId v : node.operands) {
      if (v == kNoValue) {
        continue;
      }
      const Dims& dims = graph_.type(v).dims;
      const Dims& strides = places_[v].strides;
      check_in_memory(v);
      bool row_major = node.op->reads != kDenseOperands || same_strides(dims, strides, contiguous_strides(dims));
      check(row_major, node.op->name, " reads %", v, " as row-major memory, which it is not");
      bool has_rows = node.op->reads != kDenseRows || dims.empty() || dims.back() <= 1 || strides.back() == 1;
      check(has_rows, node.op->name, " reads rows of %", v, ", whose elements lie apart");
    }
  }

  // The caller reads buffers as row-major memory, and keeps all of it alive.
  void check_output(ValueId v, const Dims& strides) {
    ValueId whole = root(v);
    enter("output %", v);
    check_in_memory(whole);
    bool ordered = places_[v].offset == 0 && places_[v].moved_by < 0 && same_strides(graph_.type(v).dims, places_[v].strides, strides);
    check(ordered, "does not lie in the requested order");
    check(graph_.type(v).numel() == span(whole), "is a part of %", whole);
  }
};

} // namespace

void verify_layout(const Schedule& schedule, const char* stage) {
  LayoutVerifier(schedule, stage).run();
}

} // namespace torch_xla::cpu
