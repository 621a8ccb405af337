// The layout stage: one forward walk that copies the graph and gives each value a place.
#include "engine/cpu/schedule/layout.h"

#include <algorithm>
#include <utility>

#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/schedule/image_order.h"
#include "engine/cpu/schedule/library_strides.h"
#include "engine/cpu/schedule/pieces.h"
#include "engine/cpu/schedule/placed_graph.h"
#include "engine/cpu/schedule/reduction.h"
#include "ir/view.h"

namespace torch_xla::cpu {
namespace {

class LayoutStage : private PlacedGraph {
 public:
  explicit LayoutStage(const Graph& in)
      : in_(in),
        map_(in.values.size(), kNoValue),
        wanted_(in.values.size()),
        pieces_(in),
        cut_(in.values.size(), kNoValue),
        rows_(in.values.size(), kNoValue),
        image_orders_(in) {}

  LaidOutGraph run() {
    const size_t copies = in_.nodes.size() / 8; // about so many are added
    graph_.reserve(in_.nodes.size() + copies, in_.values.size() + copies);
    places_.reserve(in_.values.size() + copies);
    copy_inputs();
    find_wanted_orders();
    for (const Node& node : in_.nodes) {
      add(node);
    }
    for (size_t i = 0; i < in_.outputs.size(); ++i) {
      graph_.outputs.push_back(output_value(map_[in_.outputs[i]], order_of_output(in_, i)));
    }
    graph_.output_strides = in_.output_strides;
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

  // Parameters and scalars keep the order of their lists, which may differ from the order of their ids: runs pass them by position.
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

  // An output is stored in its requested order, any other value in the first dense order that a view needs.
  void find_wanted_orders() {
    for (size_t i = 0; i < in_.outputs.size(); ++i) {
      ValueId v = in_.outputs[i];
      if (wanted_[v].empty()) {
        wanted_[v] = order_of_output(in_, i);
      }
    }
    for (const Node& node : in_.nodes) {
      if (node.op->kind != OpKind::kView && node.op->kind != OpKind::kViewUpdate) {
        continue;
      }
      ValueId base = node.operands[0];
      ViewGeometry view = view_geometry(in_, node);
      if (wanted_[base].empty() && is_dense(view.base_dims, view.base_strides)) {
        wanted_[base] = view.base_strides;
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
        if (is_reduce(node.op->prim)) {
          map_[node.result()] = add_reduce(node, operands[0]);
        } else {
          add_pointwise(node, std::move(operands));
        }
        break;
      case OpKind::kView:
        map_[node.result()] = add_view(geometry(node), in_memory(operands[0]));
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

  // The geometry of a view, with its number in the new graph.
  ViewGeometry geometry(const Node& node) const {
    ViewGeometry view = view_geometry(in_, node);
    view.moved_by = view.moved_by == kNoValue ? kNoValue : map_[view.moved_by];
    return view;
  }

  // A result that only kernels read may have any order; its operands' order lets both sides walk memory forwards.
  void add_pointwise(const Node& node, InlineVec<ValueId, 4> operands) {
    ValueId old = node.result();
    const Type& type = in_.type(old);
    if (const ReductionCut* cut = pieces_.find_cut(old)) {
      cut_[old] = add_in_pieces(node, *cut);
      map_[old] = pieces_.is_view(old) ? reshape(cut_[old], type.dims) : kNoValue;
    }
    if (!pieces_.is_whole(old)) {
      return;
    }
    Dims strides = wanted_[old].empty() ? order_of_operands(type.dims, operands) : wanted_[old];
    map_[old] = append(*node.op, std::move(operands), node.attrs, type, std::move(strides));
  }

  ValueId add_in_pieces(const Node& node, const ReductionCut& cut) {
    const Type& whole = in_.type(node.result());
    InlineVec<ValueId, 4> operands;
    for (ValueId v : node.operands) {
      operands.push_back(in_pieces(v, whole.dims, cut));
    }
    Dims strides = order_of_operands(cut.pieces, operands);
    return append(*node.op, std::move(operands), node.attrs, {whole.dtype, cut.pieces}, std::move(strides));
  }

  // An operand, perhaps broadcast, of a node with result dims `whole`.
  ValueId in_pieces(ValueId old, const Dims& whole, const ReductionCut& cut) {
    const Dims& dims = in_.type(old).dims;
    if (cut_[old] != kNoValue && dims == whole && graph_.type(cut_[old]).dims == cut.pieces) {
      return cut_[old];
    }
    if (dims.size() < whole.size() || dims[0] != whole[0]) {
      return cut.has_rows() && num_elements(dims) > 1 ? for_each_row(old, cut) : map_[old];
    }
    Dims pieces(cut.pieces.data(), cut.pieces.size() - whole.size() + 1);
    for (size_t d = 1; d < dims.size(); ++d) {
      pieces.push_back(dims[d]);
    }
    const Node* node = in_.find_producer(old);
    const bool counts = node && node->op->kind == OpKind::kPrim && node->op->prim == Prim::kIota;
    return counts ? iota_in_pieces(*node, std::move(pieces), cut) : reshape(in_memory(map_[old]), pieces);
  }

  // A value common to all rows, repeated for each adjacent row: only then the loops over rows and columns are one.
  ValueId for_each_row(ValueId old, const ReductionCut& cut) {
    ValueId& rows = rows_[old];
    if (rows == kNoValue || graph_.type(rows).dims != cut.row_dims()) {
      rows = stored(map_[old], cut.row_dims());
    }
    return rows;
  }

  // Counted again along the first dim in the order of memory, as a view would force a store. For the same reason a table gives the number
  // of the adjacent row of an element. (Floats are rounded once, so they are not summed from parts.)
  ValueId iota_in_pieces(const Node& node, Dims pieces, const ReductionCut& cut) {
    const auto& [dtype, whole] = in_.type(node.result());
    const size_t parts = pieces.size() - whole.size() + 1; // of the first dim
    if (const auto along = std::get<int64_t>(node.attrs.at(0)); along > 0) {
      return iota(pieces, along + static_cast<int64_t>(parts) - 1, dtype);
    }
    std::fill(pieces.begin() + parts, pieces.end(), 1);
    if (!cut.has_rows() || is_float(dtype)) {
      return iota(pieces, -1, dtype);
    }
    Dims beside(pieces.size(), 1);
    beside[parts - 1] = std::exchange(pieces[parts - 1], 1);
    const ValueId table = stored(iota(beside, static_cast<int64_t>(parts) - 1, dtype), cut.row_dims());
    const ValueId groups = iota(pieces, -1, dtype);
    return combine(Prim::kAdd, combine(Prim::kMul, groups, integer(num_elements(beside), dtype)), table);
  }

  // A reduction over extents of 1 becomes an identity, so that later stages see a kernel without reductions.
  ValueId add_reduce(const Node& node, ValueId x) {
    Dims over;
    const Type type = in_.type(node.operands[0]);
    if (cut_[node.operands[0]] != kNoValue && std::get<Dims>(node.attrs.at(0)) == Dims{0}) {
      return reduce_pieces(node, cut_[node.operands[0]], pieces_.find_cut(node.operands[0])->rest);
    }
    for (int64_t d : std::get<Dims>(node.attrs.at(0))) {
      if (type.dims[d] != 1) {
        over.push_back(d);
      }
    }
    std::sort(over.begin(), over.end());
    if (over.empty()) {
      return copy_as(x, places_[x].strides);
    }
    const ReductionCut cut = cut_reduction(type.dims, places_[x].strides, over);
    if (!cut.last.empty()) {
      Dims first(over.data() + cut.last.size(), over.size() - cut.last.size());
      return reduce(node, reduce(node, x, first), cut.last);
    }
    if (!cut.pieces.empty()) {
      return reduce_pieces(node, reshape(x, cut.pieces), cut.rest);
    }
    return reduce(node, x, over);
  }

  ValueId reduce(const Node& node, ValueId x, const Dims& over) {
    Type type = graph_.type(x);
    for (int64_t d : over) {
      type.dims[d] = 1;
    }
    Dims strides = contiguous_strides(type.dims);
    return append(*node.op, {x}, {over}, type, std::move(strides));
  }

  ValueId reduce_pieces(const Node& node, ValueId pieces, const Dims& rest) {
    return reshape(reduce(node, reduce(node, pieces, {1}), rest), in_.type(node.result()).dims);
  }

  // The base is a whole memory, so that the update can be in place.
  ValueId add_update(const Node& node, ValueId base, ValueId update) {
    ViewGeometry view = geometry(node);
    const Type type = graph_.type(base);
    auto placed = rebase_view(view, places_[base].strides);
    bool whole = places_[base].root == base && is_dense(type.dims, places_[base].strides);
    if (!placed || !whole) {
      base = copy_as(base, view.base_strides);
      placed = view;
    }
    InlineVec<ValueId, 4> operands{base, update};
    if (view.moved_by != kNoValue) {
      operands.push_back(view.moved_by);
    }
    return append(*node.op, std::move(operands), view_attrs(*placed), type, placed->base_strides);
  }

  void add_library(const Node& node, InlineVec<ValueId, 4> operands) {
    std::vector<Type> types;
    for (int32_t i = 0; i < node.num_results; ++i) {
      types.push_back(in_.type(node.result(i)));
    }
    for (ValueId& v : operands) {
      v = v == kNoValue ? kNoValue : as_read(*node.op, in_memory(v));
    }
    if (auto convolution = ImageConvolution::find(in_, node)) {
      order_images(*convolution, operands);
    }
    bool reorders = gains_from_channels_last(node, operands);
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

  // With a channels-last weight ATen reads images in that order.
  void order_images(const ImageConvolution& convolution, InlineVec<ValueId, 4>& operands) {
    const ValueId weight = operands[convolution.weight];
    const Type& type = graph_.type(weight);
    const ImageOrder order = image_orders_.find(convolution, type.numel());
    if (order == ImageOrder::kAsGiven ||
        (order == ImageOrder::kRowMajor && !same_strides(type.dims, places_[weight].strides, contiguous_strides(type.dims)))) {
      return;
    }
    for (size_t i = 0; i < convolution.weight; ++i) {
      const Dims& dims = graph_.type(operands[i]).dims;
      operands[i] = in_order(operands[i], order == ImageOrder::kRowMajor ? contiguous_strides(dims) : channels_last_strides(dims));
    }
  }

  // A copy if the kernel would misread the memory. Other operands keep their strides: ATen's products take transposed operands, and most
  // calls make a row-major copy themselves if they need one.
  ValueId as_read(const Op& op, ValueId v) {
    const Dims& dims = graph_.type(v).dims;
    Dims row_major = contiguous_strides(dims);
    const Dims& strides = places_[v].strides;
    bool has_rows = dims.empty() || dims.back() <= 1 || strides.back() == 1;
    bool misread = op.reads == kDenseOperands ? !same_strides(dims, strides, row_major) : op.reads == kDenseRows && !has_rows;
    return misread ? copy_as(v, row_major) : v;
  }

  // Whether the call gains from channels-last memory of operand 0: row-major images of many channels.
  bool gains_from_channels_last(const Node& node, const InlineVec<ValueId, 4>& operands) const {
    if (node.op->reads != kFasterChannelsLast) {
      return false;
    }
    ValueId x = operands[0];
    const Dims& dims = graph_.type(x).dims;
    return dims.size() == 4 && dims[1] >= kPooledChannels && same_strides(dims, places_[x].strides, contiguous_strides(dims));
  }

  // v in the order `strides`. A view that covers the whole of such memory shares it; others get their own, so that no small slice keeps a
  // large buffer alive.
  ValueId output_value(ValueId v, const Dims& strides) {
    const Place& place = places_[v];
    const Type type = graph_.type(v);
    const Value& root = graph_.values[place.root];
    bool ordered = place.offset == 0 && place.moved_by < 0 && same_strides(type.dims, place.strides, strides);
    bool whole = type.numel() == root.type.numel() && is_dense(root.type.dims, places_[place.root].strides);
    return ordered && whole && root.kind != ValueKind::kScalar ? v : copy_as(v, strides);
  }

  const Graph& in_;
  std::vector<ValueId> map_; // by value of in_
  std::vector<Dims> wanted_; // by value of in_; empty: no wish
  const ValuesInPieces pieces_;
  std::vector<ValueId> cut_; // by value of in_: the same in pieces, or none
  std::vector<ValueId> rows_; // by value of in_: the same for each of the rows of a cut, or none
  const ImageOrders image_orders_;
};

} // namespace

LaidOutGraph lay_out(const Graph& graph) {
  return LayoutStage(graph).run();
}

} // namespace torch_xla::cpu
