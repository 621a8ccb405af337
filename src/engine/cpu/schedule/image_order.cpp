// Counts the convolutions that gain from channels-last images, and the copies that these need.
#include "engine/cpu/schedule/image_order.h"

#include <algorithm>
#include <variant>

#include "engine/cpu/cost.h"
#include "engine/cpu/schedule/library_strides.h"
#include "ir/view.h"

namespace torch_xla::cpu {
namespace {

// Whether it is a convolution's gradient: the result's gradient comes before the input.
bool is_gradient(const Op& op) {
  return op.order_of > 0;
}

// A view of images that needs row-major order, and a copy of channels-last images: of groups of channels, say.
bool needs_row_major(const Graph& graph, const Node& node) {
  if (node.op->kind != OpKind::kView) {
    return false;
  }
  const ViewGeometry view = view_geometry(graph, node);
  return view.base_dims.size() == 4 && !rebase_view(view, channels_last_strides(view.base_dims));
}

// Whether another program writes or reads it, in the order of its tensor.
bool is_shared(const Graph& graph, ValueId v) {
  return graph.values[v].kind == ValueKind::kParameter || std::find(graph.outputs.begin(), graph.outputs.end(), v) != graph.outputs.end();
}

int64_t count_shared_images(const Graph& graph, const Node& node, const ImageConvolution& convolution) {
  int64_t count = is_shared(graph, node.result());
  for (size_t i = 0; i < convolution.weight; ++i) {
    count += is_shared(graph, node.operands[i]);
  }
  return count;
}

} // namespace

std::optional<ImageConvolution> ImageConvolution::find(const Graph& graph, const Node& node) {
  if (node.op->layout != ResultLayout::kConvolution) {
    return std::nullopt;
  }
  const bool gradient = is_gradient(*node.op);
  const bool transposed = std::get<bool>(node.attrs[gradient ? 4 : 3]);
  const auto place = static_cast<size_t>(node.op->order_of);
  const Type& input = graph.type(node.operands[place]);
  if (transposed || input.dims.size() != 4 || (input.dtype != DType::F32 && input.dtype != DType::BF16 && input.dtype != DType::U8)) {
    return std::nullopt;
  }
  const Type& result = gradient ? graph.type(node.operands[0]) : graph.type(node.result());
  return ImageConvolution{place + 1, input.numel() + result.numel()};
}

ImageOrders::ImageOrders(const Graph& graph) {
  int64_t convolutions = 0;
  int64_t copies = 0;
  int64_t batches = 0; // input images; for inference the smallest, as they have few channels
  for (const Node& node : graph.nodes) {
    if (auto convolution = ImageConvolution::find(graph, node)) {
      ++convolutions;
      copies += count_shared_images(graph, node, *convolution);
      batches += !is_gradient(*node.op) && graph.values[node.operands[0]].kind == ValueKind::kParameter;
      gradients_ |= is_gradient(*node.op);
    }
  }
  if (convolutions == 0) { // most programs: their views need not be looked at
    return;
  }
  copies += std::count_if(graph.nodes.begin(), graph.nodes.end(), [&graph](const Node& node) { return needs_row_major(graph, node); });
  any_ = 2 * convolutions > 3 * (copies - (gradients_ ? 0 : batches)); // a copy costs more than a convolution gains
}

ImageOrder ImageOrders::find(const ImageConvolution& convolution, int64_t weight_elements) const {
  if (!any_) {
    return ImageOrder::kAsGiven;
  }
  return gradients_ && weight_elements > convolution.image_elements / kWeightShare ? ImageOrder::kRowMajor : ImageOrder::kChannelsLast;
}

} // namespace torch_xla::cpu
