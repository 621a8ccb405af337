// The rules of a well-formed graph.
#include <algorithm>

#include "core/errors.h"
#include "ir/builder.h"
#include "ir/strides.h"

namespace torch_xla {
namespace {

std::string describe(const Graph& graph, size_t index) {
  const Node& node = graph.nodes[index];
  std::string text = str("node ", index, ", %", node.first_result, " = ", node.op ? node.op->name : "(no row)", "(");
  for (ValueId v : node.operands) {
    text += str(&v == node.operands.begin() ? "" : ", ", "%", v);
  }
  return text + ")";
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  void run() {
    check(graph_.parameters.size() == graph_.parameter_strides.size(), "parameter_strides is not parallel to parameters");
    check(graph_.parameters.size() == graph_.parameter_shardings.size(), "parameter_shardings is not parallel to parameters");
    check_inputs(graph_.parameters, ValueKind::kParameter);
    check_inputs(graph_.scalars, ValueKind::kScalar);
    bool parallel = graph_.fixed_scalars.empty() || graph_.fixed_scalars.size() == graph_.scalars.size();
    check(parallel, "fixed_scalars is not parallel to scalars");
    for (index_ = 0; index_ < graph_.nodes.size(); ++index_) {
      check_node(graph_.nodes[index_]);
    }
    check(
        graph_.output_strides.empty() || graph_.output_strides.size() == graph_.outputs.size(),
        "output_strides is not parallel to outputs");
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      ValueId v = graph_.outputs[i];
      check(is_value(v), "output %", v, " is out of range");
      const Dims strides = graph_.strides_of_output(i);
      const Dims& dims = graph_.type(v).dims;
      check(
          strides.empty() || (strides.size() == dims.size() && is_dense(dims, strides)), "output %", v, " has strides that are not dense");
    }
  }

 private:
  template <typename... Args>
  void check(bool ok, const Args&... what) const {
    if (!ok) {
      std::string place = index_ < graph_.nodes.size() ? describe(graph_, index_) : "graph";
      throw InternalError(str(place, ": ", what...));
    }
  }
  bool is_value(ValueId v) const {
    return v >= 0 && static_cast<size_t>(v) < graph_.values.size();
  }
  void check_inputs(const std::vector<ValueId>& inputs, ValueKind kind) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      check(is_value(inputs[i]), "input %", inputs[i], " is out of range");
      const Value& value = graph_.values[inputs[i]];
      check(value.kind == kind && value.index == static_cast<int32_t>(i), "input %", inputs[i], " does not know its position");
    }
  }
  void check_node(const Node& node) const {
    check(node.op, "no row");
    check_results(node);
    for (ValueId v : node.operands) {
      check_operand(v);
    }
    check_types(node);
  }
  void check_results(const Node& node) const {
    for (int32_t i = 0; i < node.num_results; ++i) {
      ValueId v = node.result(i);
      bool known = is_value(v) && graph_.values[v].kind == ValueKind::kResult && graph_.values[v].index == static_cast<int32_t>(index_);
      check(known, "result %", v, " does not know its node");
    }
  }
  void check_operand(ValueId v) const {
    if (v == kNoValue) {
      return;
    }
    check(is_value(v), "operand %", v, " is out of range");
    const Value& value = graph_.values[v];
    check(value.kind != ValueKind::kResult || value.index < static_cast<int32_t>(index_), "operand %", v, " is used before its definition");
    check(value.type.dtype != DType::Undefined, "operand %", v, " has no type");
  }
  void check_types(const Node& node) const {
    switch (node.op->kind) {
      case OpKind::kPrim:
        return check_prim(node);
      case OpKind::kView:
        return check_view(node);
      case OpKind::kViewUpdate:
        return check_view_update(node);
      case OpKind::kPointwise:
        return check_pointwise(node);
      default:
        return check_inferred(node);
    }
  }

  // ---- Primitives ----
  const Type& operand(const Node& node, size_t i) const {
    return graph_.type(node.operands[i]);
  }
  const Type& result(const Node& node) const {
    return graph_.type(node.first_result);
  }
  void check_arity(const Node& node, size_t operands, size_t attrs) const {
    bool fits = node.operands.size() == operands && node.attrs.size() == attrs && node.num_results == 1;
    check(fits, "wrong number of operands or attributes");
    check(std::find(node.operands.begin(), node.operands.end(), kNoValue) == node.operands.end(), "an operand is none");
  }
  void check_result(const Node& node, const Type& want) const {
    check(result(node) == want, "result is ", type_text(result(node)), ", not ", type_text(want));
  }
  void check_prim(const Node& node) const {
    Prim p = node.op->prim;
    if (is_unary(p) || is_binary(p) || p == Prim::kSelect) {
      return check_scalar_prim(node);
    }
    if (is_reduce(p)) {
      return check_reduce(node);
    }
    if (p == Prim::kConvert) {
      check_arity(node, 1, 0);
      check(broadcast(operand(node, 0).dims, result(node).dims) == result(node).dims, "operand does not broadcast to the result");
    } else if (p == Prim::kConstant) {
      check_constant(node);
    } else {
      check_generator(node);
    }
  }
  Dims broadcast(const Dims& a, const Dims& b) const {
    try {
      return broadcast_dims(a, b);
    } catch (const UserError& e) {
      check(false, e.what());
      throw;
    }
  }
  void check_scalar_prim(const Node& node) const {
    Prim p = node.op->prim;
    size_t first = p == Prim::kSelect ? 1 : 0;
    check_arity(node, is_unary(p) ? 1 : is_binary(p) ? 2 : 3, 0);
    check(first == 0 || operand(node, 0).dtype == DType::Bool, "the predicate is not pred");
    Dims dims = operand(node, 0).dims;
    for (size_t i = first; i < node.operands.size(); ++i) {
      check(operand(node, i).dtype == operand(node, first).dtype, "operands differ in type");
      dims = broadcast(dims, operand(node, i).dims);
    }
    check_result(node, {gives_bool(p) ? DType::Bool : operand(node, first).dtype, dims});
  }
  void check_reduce(const Node& node) const {
    check_arity(node, 1, 1);
    auto* dims = std::get_if<Dims>(&node.attrs[0]);
    check(dims, "no list of dims");
    Type want = operand(node, 0);
    for (int64_t d : *dims) {
      check(d >= 0 && d < static_cast<int64_t>(want.dims.size()), "dim ", d, " is out of range");
      want.dims[d] = 1;
    }
    check_result(node, want);
  }
  void check_constant(const Node& node) const {
    check_arity(node, 0, 1);
    bool has_kind = node.attrs[0].index() == (is_float(result(node).dtype) ? Attr(0.0).index() : Attr(int64_t{0}).index());
    check(has_kind && result(node).dims.empty(), "a constant is 0-d and has its type's kind of attribute");
  }
  // iota and random_bits
  void check_generator(const Node& node) const {
    bool random = node.op->prim == Prim::kRandomBits;
    check_arity(node, random ? 2 : 0, 1);
    auto* number = std::get_if<int64_t>(&node.attrs[0]);
    int64_t limit = random ? 4 : static_cast<int64_t>(result(node).dims.size());
    check(number && *number >= (random ? 0 : -1) && *number < limit, "attribute out of range");
    for (ValueId v : node.operands) {
      check(graph_.type(v) == Type{DType::I64, {}}, "seed and offset are i64[]");
    }
    check(!random || result(node).dtype == DType::I32, "random bits are i32");
  }

  // ---- Views ----
  void check_geometry(const Node& node, const Type& viewed) const {
    auto* base_strides = std::get_if<Dims>(&node.attrs[kViewBaseStrides]);
    auto* strides = std::get_if<Dims>(&node.attrs[kViewStrides]);
    check(base_strides && strides && std::holds_alternative<int64_t>(node.attrs[kViewOffset]), "attributes of other kinds than a view's");
    check(base_strides->size() == operand(node, 0).dims.size(), "one base stride for each dim of the operand");
    check(strides->size() == viewed.dims.size(), "one stride for each dim of the view");
    check(viewed.dtype == operand(node, 0).dtype, "a view has its operand's element type");
    check_bounds(node, viewed, *base_strides, *strides);
  }
  void check_bounds(const Node& node, const Type& viewed, const Dims& base, const Dims& strides) const {
    if (viewed.numel() == 0) {
      return;
    }
    int64_t offset = std::get<int64_t>(node.attrs[kViewOffset]);
    check(offset >= 0 && std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s >= 0; }), "negative offset or stride");
    check(operand(node, 0).numel() > 0, "a view of nothing has elements");
    check(offset + span_elements(viewed.dims, strides) <= span_elements(operand(node, 0).dims, base), "the view leaves its operand");
  }
  // `tensors`, and a number where the view moves.
  void check_view_operands(const Node& node, size_t tensors) const {
    bool moves = node.operands.size() == tensors + 1;
    check_arity(node, tensors + moves, 3);
    ValueId number = moves ? node.operands[tensors] : kNoValue;
    bool known = !moves || (graph_.values[number].kind == ValueKind::kScalar && graph_.type(number).dtype == DType::I64);
    check(known, "a view is moved by an i64 number of the program");
  }
  void check_view(const Node& node) const {
    check_view_operands(node, 1);
    check_geometry(node, result(node));
  }
  void check_view_update(const Node& node) const {
    check_view_operands(node, 2);
    check_geometry(node, operand(node, 1));
    check_result(node, operand(node, 0));
  }

  // ---- ATen rows ----
  // In-place and out forms give a pointwise node another result type than its rule; its dims must still be reached by broadcasting.
  void check_pointwise(const Node& node) const {
    check(node.op->body && node.num_results == 1, "a pointwise row has a body and one result");
    Dims dims;
    for (ValueId v : node.operands) {
      if (v != kNoValue) {
        dims = broadcast(dims, graph_.type(v).dims);
      }
    }
    check(broadcast(dims, result(node).dims) == result(node).dims, "operands do not broadcast to the result");
  }
  void check_inferred(const Node& node) const {
    check(node.op->infer || node.op->kind == OpKind::kLibrary, "a row without a shape rule");
    if (!node.op->infer) {
      return; // ATen's rule is not available here
    }
    InferContext context(graph_, {node.operands.data(), node.operands.size()}, node.attrs);
    try {
      node.op->infer(context);
    } catch (const UserError& e) {
      check(false, e.what());
    }
    check(context.results().size() == static_cast<size_t>(node.num_results), "the row's rule gives another number of results");
    for (int32_t i = 0; i < node.num_results; ++i) {
      const Type& want = context.results()[i];
      const Type& got = graph_.type(node.result(i));
      check(want.dtype == DType::Undefined || got == want, "result ", i, " is ", type_text(got), ", not ", type_text(want));
    }
  }

  const Graph& graph_;
  size_t index_ = SIZE_MAX; // node under test
};

} // namespace

void verify_graph(const Graph& graph) {
  Verifier(graph).run();
}

} // namespace torch_xla
