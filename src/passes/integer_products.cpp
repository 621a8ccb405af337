// Products read 8-bit integers as they are stored, where a program converts them to a type of products first.
#include "ir/builder.h"
#include "ir/view.h"
#include "ops/registry.h"
#include "ops/tables.h"
#include "passes/graph_copy.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

bool has_8_bits(DType dtype) {
  return dtype == DType::I8 || dtype == DType::U8;
}

// Whether the type holds all 8-bit integers.
bool holds_8_bits(DType dtype) {
  return is_float(dtype) || (is_integral(dtype, false) && !has_8_bits(dtype));
}

class IntegerProducts : private GraphCopy {
 public:
  IntegerProducts(const Graph& graph, ReadsIntegers reads) : GraphCopy(graph), reads_(reads), builder_(graph_) {}

  // Nothing if there is no such product.
  std::optional<Graph> run() {
    add_inputs();
    for (const Node& node : from_.nodes) {
      if (!is_matrix_product(*node.op) || !rewrite(node)) {
        copy(node);
      }
    }
    return changed_ ? std::optional<Graph>(take_graph()) : std::nullopt;
  }

 private:
  // The node that makes v, if it shows or converts v's elements.
  const Node* find_form(ValueId v) const {
    const Node* node = from_.find_producer(v);
    if (!node || node->op->kind == OpKind::kView) {
      return node;
    }
    const bool converts = node->op->kind == OpKind::kPrim && node->op->prim == Prim::kConvert;
    return converts && from_.type(node->operands[0]).dims == from_.type(v).dims ? node : nullptr;
  }
  // The type of the 8-bit integers whose conversion v is; Undefined: none.
  DType stored_dtype(ValueId v) const {
    const Node* node = find_form(v);
    while (node && holds_8_bits(from_.type(v).dtype)) {
      v = node->operands[0];
      node = find_form(v);
    }
    const DType dtype = from_.type(v).dtype;
    return has_8_bits(dtype) ? dtype : DType::Undefined;
  }
  // v as stored: the same views, without conversions.
  ValueId add_stored(ValueId v) {
    if (has_8_bits(from_.type(v).dtype)) {
      return get_mapped(v);
    }
    const Node& node = *find_form(v);
    const ValueId base = add_stored(node.operands[0]);
    if (node.op->kind != OpKind::kView) {
      return base;
    }
    return add_view(*node.op, view_geometry(from_, node), base, node.location);
  }
  void add_product(const Node& node, const Op& op, std::span<const ValueId> operands) {
    const Type type = from_.type(node.result());
    mapped_[node.result()] = builder_.library(op, operands, {}, {&type, 1});
    changed_ = true;
  }
  bool rewrite(const Node& node) {
    const Type type = from_.type(node.result());
    const DType a = stored_dtype(node.operands[0]);
    if (stored_dtype(node.operands[1]) != DType::I8 || !reads_(type.dtype, type.dims[0], from_.type(node.operands[0]).dims[1])) {
      return false;
    }
    builder_.set_location(node.location);
    if (type.dtype == DType::I32 && has_8_bits(a)) {
      const ValueId operands[] = {add_stored(node.operands[0]), add_stored(node.operands[1])};
      add_product(node, get_op("aten::_int_mm"), operands);
      return true;
    }
    if (!is_float(type.dtype)) {
      return false;
    }
    const ValueId weight = builder_.permute(add_stored(node.operands[1]), {1, 0});
    const ValueId scales = builder_.broadcast(builder_.constant(1, type.dtype), {type.dims[1]});
    const ValueId operands[] = {get_mapped(node.operands[0]), weight, scales};
    add_product(node, get_op("aten::_weight_int8pack_mm"), operands);
    return true;
  }

  const ReadsIntegers reads_;
  Builder builder_;
  bool changed_ = false;
};

} // namespace

std::optional<Graph> integer_products(const Graph& graph, ReadsIntegers reads) {
  return IntegerProducts(graph, reads).run();
}

} // namespace torch_xla
