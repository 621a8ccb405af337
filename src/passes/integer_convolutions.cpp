// Convolutions of images and weights that were dequantized just before take their integers, scales and zeros.
#include <array>

#include "ir/builder.h"
#include "ops/registry.h"
#include "ops/tables.h"
#include "passes/graph_copy.h"
#include "passes/passes.h"

namespace torch_xla {
namespace {

// scale * (numbers - zero)
struct Dequantized {
  ValueId numbers; // 8-bit integers
  ValueId scale;
  ValueId zero; // kNoValue: none
};

class IntegerConvolutions : private GraphCopy {
 public:
  explicit IntegerConvolutions(const Graph& graph) : GraphCopy(graph), builder_(graph_) {}

  // Nothing if there is no such convolution.
  std::optional<Graph> run() {
    add_inputs();
    for (const Node& node : from_.nodes) {
      if (!is_convolution(*node.op) || !rewrite(node)) {
        copy(node);
      }
    }
    return changed_ ? std::optional<Graph>(take_graph()) : std::nullopt;
  }

 private:
  const Node* find_prim(ValueId v, Prim prim) const {
    const Node* node = from_.find_producer(v);
    return node && node->op->kind == OpKind::kPrim && node->op->prim == prim ? node : nullptr;
  }
  // v before its conversions, or as 8-bit integers.
  ValueId unconverted(ValueId v) const {
    const Node* node = find_prim(v, Prim::kConvert);
    while (node && item_size(from_.type(v).dtype) > 1) {
      v = node->operands[0];
      node = find_prim(v, Prim::kConvert);
    }
    return v;
  }
  std::optional<Dequantized> find_dequantized(ValueId v, DType dtype) const {
    const Node* scaled = find_prim(v, Prim::kMul);
    if (!scaled) {
      return std::nullopt;
    }
    ValueId numbers = unconverted(scaled->operands[0]);
    ValueId zero = kNoValue;
    if (const Node* shifted = find_prim(numbers, Prim::kSub)) {
      numbers = unconverted(shifted->operands[0]);
      zero = unconverted(shifted->operands[1]);
    }
    if (from_.type(numbers) != Type{dtype, from_.type(v).dims}) {
      return std::nullopt;
    }
    return Dequantized{numbers, unconverted(scaled->operands[1]), zero};
  }
  // Whether v is one number, or one for each channel: dims of 1 but the first.
  bool has(int64_t channels, ValueId v) const {
    const Dims& dims = from_.type(v).dims;
    return from_.type(v).numel() == channels && (channels == 1 || (!dims.empty() && dims[0] == channels));
  }
  bool fits(const Dequantized& d, int64_t channels) const {
    return has(channels, d.scale) && is_float(from_.type(d.scale).dtype) &&
        (d.zero == kNoValue || (has(channels, d.zero) && is_integral(from_.type(d.zero).dtype, false)));
  }
  ValueId in_form(ValueId v, DType dtype, const Dims& dims) {
    return v == kNoValue ? v : builder_.reshape(builder_.convert(get_mapped(v), dtype), dims);
  }
  bool rewrite(const Node& node) {
    const Type type = from_.type(node.result());
    const std::optional<Dequantized> input = find_dequantized(node.operands[0], DType::U8);
    const std::optional<Dequantized> weight = find_dequantized(node.operands[1], DType::I8);
    if (!input || !weight || type.dtype != DType::F32 || type.dims.size() != 4 || std::get<bool>(node.attrs[3])) {
      return false;
    }
    const int64_t channels = type.dims[1];
    if (!fits(*input, 1) || !fits(*weight, channels)) {
      return false;
    }
    builder_.set_location(node.location);
    const std::array operands{
        get_mapped(input->numbers),
        get_mapped(weight->numbers),
        map_operand(node.operands[2]),
        in_form(input->scale, DType::F32, {}),
        in_form(input->zero, DType::I64, {}),
        in_form(weight->scale, DType::F32, {channels}),
        in_form(weight->zero, DType::I64, {channels})};
    mapped_[node.result()] = builder_.library(get_op("xla::quantized_convolution"), operands, node.attrs, {&type, 1});
    changed_ = true;
    return true;
  }

  Builder builder_;
  bool changed_ = false;
};

} // namespace

std::optional<Graph> integer_convolutions(const Graph& graph) {
  return IntegerConvolutions(graph).run();
}

} // namespace torch_xla
