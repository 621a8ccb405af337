// Constant folding on the host.
#include "passes/fold.h"

#include <cmath>

namespace torch_xla {
namespace {

std::optional<Attr> fold_float(Prim prim, DType dtype, double a, double b) {
  switch (prim) {
    case Prim::kNeg:
      return round_to(dtype, -a);
    case Prim::kAdd:
      return round_to(dtype, a + b);
    case Prim::kSub:
      return round_to(dtype, a - b);
    case Prim::kMul:
      return round_to(dtype, a * b);
    case Prim::kDiv:
      return round_to(dtype, a / b);
    default:
      return std::nullopt;
  }
}

std::optional<Attr> fold_int(Prim prim, DType dtype, int64_t a, int64_t b) {
  // Unsigned arithmetic wraps around without undefined behaviour.
  auto x = static_cast<uint64_t>(a);
  auto y = static_cast<uint64_t>(b);
  switch (prim) {
    case Prim::kNeg:
      return wrap_to(dtype, static_cast<int64_t>(0 - x));
    case Prim::kAdd:
      return wrap_to(dtype, static_cast<int64_t>(x + y));
    case Prim::kSub:
      return wrap_to(dtype, static_cast<int64_t>(x - y));
    case Prim::kMul:
      return wrap_to(dtype, static_cast<int64_t>(x * y));
    case Prim::kDiv:
      return b == 0 || b == -1 ? std::nullopt : std::optional<Attr>(a / b);
    default:
      return std::nullopt;
  }
}

std::optional<Attr> convert_double(double v, DType to) {
  if (is_float(to)) {
    return round_to(to, v);
  }
  if (to == DType::Bool) {
    return int64_t{v != 0};
  }
  if (!(std::fabs(v) < 0x1p62)) { // also NaN
    return std::nullopt;
  }
  auto whole = static_cast<int64_t>(v);
  return wrap_to(to, whole) == whole ? std::optional<Attr>(whole) : std::nullopt;
}

Attr convert_int(int64_t v, DType to) {
  if (to == DType::F64) {
    return static_cast<double>(v);
  }
  // By way of float32, rounding once on the way to it.
  return is_float(to) ? Attr(round_to(to, static_cast<float>(v))) : Attr(wrap_to(to, v));
}

std::optional<Attr> fold_convert(const Attr& value, DType to) {
  if (auto* v = std::get_if<double>(&value)) {
    return convert_double(*v, to);
  }
  return convert_int(std::get<int64_t>(value), to);
}

} // namespace

const Attr* find_constant(const Graph& graph, ValueId v) {
  const Node* node = graph.find_producer(v);
  while (node && node->op->prim == Prim::kConvert && graph.type(node->operands[0]).dtype == graph.type(v).dtype) {
    node = graph.find_producer(node->operands[0]);
  }
  return node && node->op->prim == Prim::kConstant ? &node->attrs[0] : nullptr;
}

std::optional<Attr> fold_node(const Graph& graph, const Node& node) {
  const Type& type = graph.type(node.first_result);
  if (!type.dims.empty() || node.operands.empty() || node.operands.size() > 2 || type.dtype == DType::Undefined) {
    return std::nullopt;
  }
  const Attr* a = find_constant(graph, node.operands[0]);
  const Attr* b = find_constant(graph, node.operands.back());
  if (!a || !b) {
    return std::nullopt;
  }
  if (node.op->prim == Prim::kConvert) {
    return fold_convert(*a, type.dtype);
  }
  if (type.dtype == DType::Bool) {
    return std::nullopt;
  }
  if (auto* x = std::get_if<double>(a)) {
    return fold_float(node.op->prim, type.dtype, *x, std::get<double>(*b));
  }
  return fold_int(node.op->prim, type.dtype, std::get<int64_t>(*a), std::get<int64_t>(*b));
}

} // namespace torch_xla
