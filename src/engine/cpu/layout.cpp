// The layout pass: one forward walk that copies the graph and gives each value a place.
#include "engine/cpu/layout.h"

#include <algorithm>

#include "core/errors.h"

namespace torch_xla::cpu {
namespace {

constexpr int64_t kLargeReduction = 65536;

const std::vector<int64_t>& ints(const Node& node, size_t i) {
  return std::get<std::vector<int64_t>>(node.attrs.at(i));
}

class LayoutPass {
 public:
  explicit LayoutPass(const Graph& in)
      : in_(in), map_(in.values.size(), kNoValue), wanted_(in.values.size()), is_output_(in.values.size()) {}

  LaidOutGraph run() {
    copy_inputs();
    find_wanted_orders();
    for (const Node& node : in_.nodes) {
      add(node);
    }
    for (ValueId v : in_.outputs) {
      graph_.outputs.push_back(output_value(map_[v]));
    }
    return {std::move(graph_), std::move(places_)};
  }

 private:
  void copy_inputs() {
    for (ValueId v = 0; v < static_cast<ValueId>(in_.values.size()); ++v) {
      const Value& value = in_.values[v];
      if (value.kind == ValueKind::kParameter) {
        const Dims& given = in_.parameter_strides[value.index];
        map_[v] = graph_.add_parameter(value.type, given);
        places_.push_back({map_[v], 0, given.empty() ? contiguous_strides(value.type.dims) : given});
      } else if (value.kind == ValueKind::kScalar) {
        map_[v] = graph_.add_scalar(value.type.dtype);
        places_.push_back({map_[v], 0, {}});
      }
    }
    reorder_inputs();
  }

  // Parameters and scalars keep the order of their lists, which may differ from that of their ids.
  void reorder_inputs() {
    for (size_t i = 0; i < in_.parameters.size(); ++i) {
      graph_.parameters[i] = map_[in_.parameters[i]];
      graph_.values[graph_.parameters[i]].index = static_cast<int32_t>(i);
      graph_.parameter_strides[i] = in_.parameter_strides[i];
    }
    for (size_t i = 0; i < in_.scalars.size(); ++i) {
      graph_.scalars[i] = map_[in_.scalars[i]];
      graph_.values[graph_.scalars[i]].index = static_cast<int32_t>(i);
    }
  }

  // A value that views see in some dense order is stored in that order; outputs are row-major.
  void find_wanted_orders() {
    for (ValueId v : in_.outputs) {
      is_output_[v] = true;
    }
    for (const Node& node : in_.nodes) {
      if (node.op->kind != OpKind::kView && node.op->kind != OpKind::kViewUpdate) {
        continue;
      }
      ValueId base = node.operands[0];
      Dims strides = ints(node, kViewBaseStrides);
      if (wanted_[base].empty() && is_dense(in_.type(base).dims, strides)) {
        wanted_[base] = strides;
      }
    }
  }

  void add(const Node& node) {
    InlineVec<ValueId, 4> operands;
    for (ValueId v : node.operands) {
      operands.push_back(v == kNoValue ? kNoValue : map_[v]);
    }
    location_ = node.location;
    switch (node.op->kind) {
      case OpKind::kPrim:
        map_[node.result()] = is_reduce(node.op->prim) ? add_reduce(node, operands[0]) : add_pointwise(node, std::move(operands));
        break;
      case OpKind::kView:
        map_[node.result()] = add_view(node, in_memory(operands[0]));
        break;
      case OpKind::kViewUpdate:
        map_[node.result()] = add_update(node, in_memory(operands[0]), in_memory(operands[1]));
        break;
      case OpKind::kLibrary:
        add_library(node, std::move(operands));
        break;
      default:
        XLA_ASSERT(false, "the graph is not lowered: ", node.op->name);
    }
  }

  ValueId append(const Op& op, InlineVec<ValueId, 4> operands, Attrs attrs, const Type& type, Dims strides) {
    ValueId v = graph_.add_node(op, std::move(operands), std::move(attrs), std::span<const Type>(&type, 1), location_);
    places_.push_back({v, 0, std::move(strides)});
    return v;
  }

  // The same value stored in another order.
  ValueId copy_as(ValueId v, const Dims& strides) {
    Type type = graph_.type(v);
    return append(prim_op(Prim::kConvert), {v}, {}, type, strides);
  }

  // Scalars of the program have no memory.
  ValueId in_memory(ValueId v) {
    return graph_.values[v].kind == ValueKind::kScalar ? copy_as(v, {}) : v;
  }

  ValueId add_pointwise(const Node& node, InlineVec<ValueId, 4> operands) {
    ValueId old = node.result();
    const Type& type = in_.type(old);
    Dims strides = contiguous_strides(type.dims);
    if (!is_output_[old]) {
      strides = wanted_[old].empty() ? order_of_operands(type.dims, operands) : wanted_[old];
    }
    return append(*node.op, std::move(operands), node.attrs, type, std::move(strides));
  }

  Dims order_of_operands(const Dims& dims, const InlineVec<ValueId, 4>& operands) const {
    for (ValueId v : operands) {
      const Type& type = graph_.type(v);
      if (type.dims == dims && type.dims.size() > 1 && is_dense(dims, places_[v].strides)) {
        return places_[v].strides;
      }
    }
    return contiguous_strides(dims);
  }

  ValueId add_reduce(const Node& node, ValueId x) {
    Dims over;
    const Type type = graph_.type(x);
    for (int64_t d : ints(node, 0)) {
      if (type.dims[d] != 1) {
        over.push_back(d);
      }
    }
    std::sort(over.begin(), over.end());
    if (over.empty()) {
      return copy_as(x, places_[x].strides);
    }
    int64_t kept = num_elements(in_.type(node.result()).dims);
    if (type.numel() <= kLargeReduction * std::max<int64_t>(kept, 1) || kept >= 8) {
      return reduce(node, x, over);
    }
    return reduce_in_two_levels(node, x, over, type.numel() / kept);
  }

  ValueId reduce(const Node& node, ValueId x, const Dims& over) {
    Type type = graph_.type(x);
    for (int64_t d : over) {
      type.dims[d] = 1;
    }
    Dims strides = contiguous_strides(type.dims);
    return append(*node.op, {x}, {over.vec()}, type, std::move(strides));
  }

  // Rows first, so that threads share the work; then the few results. Without a leading dimension that fits, memory is cut in pieces.
  ValueId reduce_in_two_levels(const Node& node, ValueId x, const Dims& over, int64_t count) {
    const Dims dims = graph_.type(x).dims;
    Dims last;
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < over.size() && rows < 16; ++i) {
      last.push_back(over[i]);
      rows *= dims[over[i]];
    }
    if (rows >= 4 && count / rows >= 256) {
      Dims first(over.data() + last.size(), over.size() - last.size());
      return reduce(node, reduce(node, x, first), last);
    }
    int64_t pieces = 64;
    while (count % pieces) {
      pieces /= 2;
    }
    if (count != num_elements(dims) || pieces < 4) {
      return reduce(node, x, over);
    }
    ValueId flat = reshape(x, {pieces, count / pieces});
    return reshape(reduce(node, reduce(node, flat, {1}), {0}), in_.type(node.result()).dims);
  }

  ValueId reshape(ValueId x, const Dims& dims) {
    const Type type = graph_.type(x);
    Dims base = contiguous_strides(type.dims);
    return append_view(x, base, {type.dtype, dims}, {0, contiguous_strides(dims)});
  }

  ValueId add_view(const Node& node, ValueId x) {
    return append_view(
        x,
        Dims(ints(node, kViewBaseStrides)),
        in_.type(node.result()),
        {std::get<int64_t>(node.attrs[kViewOffset]), Dims(ints(node, kViewStrides))});
  }

  ValueId append_view(ValueId x, const Dims& base, const Type& type, const StridedView& view) {
    auto composed = compose_view(graph_.type(x).dims, base, places_[x].strides, type.dims, view);
    if (!composed) {
      x = copy_as(x, base);
      composed = view;
    }
    Place place{places_[x].root, places_[x].offset + composed->offset, composed->strides};
    ValueId v = append(kViewOp, {x}, {places_[x].strides.vec(), composed->strides.vec(), composed->offset}, type, {});
    places_[v] = std::move(place);
    return v;
  }

  ValueId add_update(const Node& node, ValueId base, ValueId update) {
    Dims base_strides = ints(node, kViewBaseStrides);
    const Type type = graph_.type(base);
    StridedView view{std::get<int64_t>(node.attrs[kViewOffset]), Dims(ints(node, kViewStrides))};
    auto composed = compose_view(type.dims, base_strides, places_[base].strides, graph_.type(update).dims, view);
    bool whole = places_[base].root == base && is_dense(type.dims, places_[base].strides);
    if (!composed || !whole) {
      base = copy_as(base, base_strides);
      composed = view;
    }
    Dims strides = places_[base].strides;
    return append(*node.op, {base, update}, {strides.vec(), composed->strides.vec(), composed->offset}, type, strides);
  }

  void add_library(const Node& node, InlineVec<ValueId, 4> operands) {
    std::vector<Type> types;
    for (int32_t i = 0; i < node.num_results; ++i) {
      types.push_back(in_.type(node.result(i)));
    }
    for (ValueId& v : operands) {
      v = v == kNoValue ? kNoValue : as_read(*node.op, in_memory(v));
    }
    bool reorders = gains_from_channels_last(node, operands[0]);
    if (reorders) {
      operands[0] = copy_as(operands[0], channels_last_strides(graph_.type(operands[0]).dims));
    }
    ValueId first = graph_.add_node(*node.op, std::move(operands), node.attrs, types, node.location);
    places_.resize(graph_.values.size());
    for (int32_t i = 0; i < node.num_results; ++i) {
      places_[first + i] = {first + i, 0, predict_library_strides(graph_, graph_.nodes.back(), i, places_)};
      map_[node.result(i)] = first + i;
    }
    for (int32_t i = 0; i < node.num_results && reorders; ++i) {
      ValueId v = first + i;
      map_[node.result(i)] = copy_as(v, contiguous_strides(graph_.type(v).dims));
    }
  }

  // A copy where the kernel would misread the memory.
  ValueId as_read(const Op& op, ValueId v) {
    const Dims& dims = graph_.type(v).dims;
    Dims row_major = contiguous_strides(dims);
    const Dims& strides = places_[v].strides;
    bool has_rows = dims.empty() || dims.back() <= 1 || strides.back() == 1;
    bool misread = (op.traits & kDenseOperands) ? !same_strides(dims, strides, row_major) : (op.traits & kDenseRows) && !has_rows;
    return misread ? copy_as(v, row_major) : v;
  }

  // ATen's max pooling is vectorized over channels only: 0.2 ms against 4 ms for 16 x 64 x 32 x 32, which pays for two copies.
  bool gains_from_channels_last(const Node& node, ValueId x) const {
    if (std::string_view(node.op->name) != "aten::max_pool2d_with_indices") {
      return false;
    }
    const Dims& dims = graph_.type(x).dims;
    return dims.size() == 4 && dims[1] >= 16 && same_strides(dims, places_[x].strides, contiguous_strides(dims));
  }

  // Outputs are row-major. A view that covers the whole of row-major memory shares it; others get their own, so that no small slice keeps a
  // large buffer alive.
  ValueId output_value(ValueId v) {
    const Place& place = places_[v];
    const Type type = graph_.type(v);
    const Value& root = graph_.values[place.root];
    if (root.kind == ValueKind::kParameter && place.root == v) {
      return v;
    }
    Dims strides = contiguous_strides(type.dims);
    bool row_major = place.offset == 0 && same_strides(type.dims, place.strides, strides);
    bool whole =
        type.numel() == root.type.numel() && same_strides(root.type.dims, places_[place.root].strides, contiguous_strides(root.type.dims));
    return row_major && whole && root.kind != ValueKind::kScalar ? v : copy_as(v, strides);
  }

  const Graph& in_;
  Graph graph_;
  std::vector<Place> places_; // by value of graph_
  std::vector<ValueId> map_; // by value of in_
  std::vector<Dims> wanted_; // by value of in_; empty: no wish
  std::vector<bool> is_output_; // by value of in_
  int32_t location_ = -1;
};

} // namespace

LaidOutGraph lay_out(const Graph& graph) {
  return LayoutPass(graph).run();
}

} // namespace torch_xla::cpu
