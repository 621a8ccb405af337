// Counts what would gain from channels-last images, and what would have to copy them.
#include "engine/cpu/schedule/image_order.h"

#include <algorithm>
#include <variant>

#include "engine/cpu/schedule/library_strides.h"
#include "ir/view.h"

namespace torch_xla::cpu {
namespace {

bool is_convolution(const Op& op) {
  return op.layout == ResultLayout::kConvolution && op.order_of == 0;
}

// Of a convolution, whose own result's gradient stands before its input.
bool is_gradient(const Op& op) {
  return op.layout == ResultLayout::kConvolution && op.order_of > 0;
}

// A view of row-major images for which those in channels-last order would have to be copied: of groups of channels, say.
bool needs_row_major(const Graph& graph, const Node& node) {
  if (node.op->kind != OpKind::kView) {
    return false;
  }
  const ViewGeometry view = view_geometry(graph, node);
  return view.base_dims.size() == 4 && !rebase_view(view, channels_last_strides(view.base_dims));
}

} // namespace

bool is_image_convolution(const Graph& graph, const Node& node) {
  constexpr size_t kTransposed = 3;
  if (!is_convolution(*node.op) || std::get<bool>(node.attrs[kTransposed])) {
    return false;
  }
  const Type& type = graph.type(node.operands[0]);
  return type.dims.size() == 4 && (type.dtype == DType::F32 || type.dtype == DType::BF16);
}

bool prefers_channels_last(const Graph& graph) {
  auto count = [&graph](auto fits) { return std::count_if(graph.nodes.begin(), graph.nodes.end(), fits); };
  if (count([](const Node& node) { return is_gradient(*node.op); }) > 0) {
    return false;
  }
  const auto convolutions = count([&graph](const Node& node) { return is_image_convolution(graph, node); });
  // A copy takes more than what a convolution gains.
  return convolutions > 0 && 2 * convolutions > 3 * count([&graph](const Node& node) { return needs_row_major(graph, node); });
}

} // namespace torch_xla::cpu
