// Weighs the images that convolutions would read channels-last against those that would have to be copied.
#include "engine/cpu/schedule/image_order.h"

#include <algorithm>
#include <variant>

#include "engine/cpu/cost.h"
#include "engine/cpu/schedule/library_strides.h"
#include "ir/view.h"

namespace torch_xla::cpu {
namespace {

// A gradient has the result's gradient before the input.
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

// Whether another program gives or takes it, in the order of its tensor.
bool is_shared(const Graph& graph, ValueId v) {
  return graph.values[v].kind == ValueKind::kParameter || std::find(graph.outputs.begin(), graph.outputs.end(), v) != graph.outputs.end();
}

// Elements of the images that are.
int64_t shared_elements(const Graph& graph, const Node& node, const ImageConvolution& convolution) {
  auto elements_of = [&graph](ValueId v) { return is_shared(graph, v) ? graph.type(v).numel() : 0; };
  int64_t elements = elements_of(node.result());
  for (size_t i = 0; i < convolution.num_images; ++i) {
    elements += elements_of(node.operands[i]);
  }
  return elements;
}

} // namespace

std::optional<ImageConvolution> ImageConvolution::find(const Graph& graph, const Node& node) {
  if (node.op->layout != ResultLayout::kConvolution) {
    return std::nullopt;
  }
  const bool gradient = is_gradient(*node.op);
  const bool transposed = std::get<bool>(node.attrs[gradient ? 4 : 3]);
  const Type& input = graph.type(node.operands[gradient ? 1 : 0]);
  if (transposed || input.dims.size() != 4 || (input.dtype != DType::F32 && input.dtype != DType::BF16)) {
    return std::nullopt;
  }
  const Type& result = gradient ? graph.type(node.operands[0]) : graph.type(node.result());
  return ImageConvolution{gradient ? 2U : 1U, gradient ? 2U : 1U, input.numel() + result.numel()};
}

ImageOrders::ImageOrders(const Graph& graph) {
  int64_t read = 0; // elements
  int64_t copied = 0;
  for (const Node& node : graph.nodes) {
    if (auto convolution = ImageConvolution::find(graph, node)) {
      read += convolution->image_elements;
      copied += shared_elements(graph, node, *convolution);
      gradients_ |= is_gradient(*node.op);
    } else if (needs_row_major(graph, node)) {
      copied += graph.type(node.operands[0]).numel();
    }
  }
  any_ = copied < read / kCopiedShare;
}

ImageOrder ImageOrders::find(const ImageConvolution& convolution, int64_t weight_elements) const {
  if (!any_) {
    return ImageOrder::kAsGiven;
  }
  return gradients_ && weight_elements > convolution.image_elements / kWeightShare ? ImageOrder::kRowMajor : ImageOrder::kChannelsLast;
}

} // namespace torch_xla::cpu
