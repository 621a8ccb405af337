// The layouts of rows as strides.
#include "engine/cpu/schedule/library_strides.h"

#include <algorithm>

#include "ir/strides.h"

namespace torch_xla::cpu {
Dims channels_last_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  int64_t step = dims[1];
  for (size_t d = dims.size(); d-- > 2;) {
    strides[d] = step;
    step *= dims[d];
  }
  strides[0] = step;
  return strides;
}

Dims predict_library_strides(const Graph& graph, const Node& node, int32_t i, const std::vector<Place>& places) {
  const Dims& dims = graph.type(node.result(i)).dims;
  auto is_channels_last_of_rank = [&](ValueId v) {
    if (v == kNoValue || graph.type(v).dims.size() != dims.size()) {
      return false;
    }
    const Dims& strides = places[v].strides;
    bool image = dims.size() == 4 || dims.size() == 5;
    const Dims& from = graph.type(v).dims;
    return image && same_strides(from, strides, channels_last_strides(from)) && !same_strides(from, strides, contiguous_strides(from));
  };
  switch (node.op->kernel_layout.value_or(node.op->layout)) {
    case ResultLayout::kAttention:
      return heads_last_strides(dims);
    case ResultLayout::kColumnMajor:
      return graph.type(node.operands[0]).dims.size() == dims.size() ? column_major_strides(dims) : contiguous_strides(dims);
    case ResultLayout::kSpectrum: {
      ValueId from = node.operands[0];
      return spectrum_strides(graph.type(from), places[from].strides, std::get<Dims>(node.attrs[0]), graph.type(node.result(i)));
    }
    case ResultLayout::kChannelsLast:
    case ResultLayout::kConvolution: {
      bool any = std::any_of(node.operands.begin(), node.operands.end(), is_channels_last_of_rank);
      return any ? channels_last_strides(dims) : contiguous_strides(dims);
    }
    default: // out forms write the given row-major memory; other results are rare and copied
      return contiguous_strides(dims);
  }
}

} // namespace torch_xla::cpu
