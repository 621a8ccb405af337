// The memory order of a boxed row's results, by the row's layout.
#include "aten/result_strides.h"

#include <ATen/ExpandUtils.h>

#include "ir/strides.h"
#include "trace/cell.h"

namespace torch_xla {
namespace {

// The operand with the memory order of result i, or null.
const at::Tensor* find_order(const Op& op, const BoxedCall& call, const Dims& dims, size_t i) {
  size_t operand = static_cast<size_t>(op.order_of) + i;
  bool given = operand < call.tensors.size() && call.tensors[operand].defined() && call.tensors[operand].sizes() == to_ref(dims);
  return given ? &call.tensors[operand] : nullptr;
}

// Without dims the call takes its tensor as flat.
bool is_flat(const Attrs& attrs) {
  return std::any_of(attrs.begin(), attrs.end(), [](const Attr& a) {
    auto* dims = std::get_if<Dims>(&a);
    return dims && dims->empty();
  });
}

// Channels-last strides if an operand (of_all: each) of the result's rank has them.
Dims channels_last_or_none(const BoxedCall& call, const Dims& dims, bool of_all) {
  if (dims.size() != 4 && dims.size() != 5) {
    return {};
  }
  auto format = dims.size() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
  auto has_format = [&](const at::Tensor& t) {
    return t.defined() && t.dim() == static_cast<int64_t>(dims.size()) && t.suggest_memory_format() == format;
  };
  bool has = of_all ? std::all_of(call.tensors.begin(), call.tensors.end(), has_format)
                    : std::any_of(call.tensors.begin(), call.tensors.end(), has_format);
  return has ? format_strides(dims, format) : Dims();
}

// Strides of clone().
Dims clone_strides(const Dims& dims, const Dims& strides) {
  return is_dense(dims, strides) ? strides : Dims(at::infer_dense_strides(to_ref(dims), to_ref(strides)));
}

bool adds_elements(const Dims& pad) {
  return std::any_of(pad.begin(), pad.end(), [](int64_t p) { return p > 0; });
}

} // namespace

Dims result_strides(const Op& op, const BoxedCall& call, const Attrs& attrs, const Type& result, size_t i) {
  const Dims& dims = result.dims;
  switch (op.layout) {
    case ResultLayout::kOfOperand: {
      const at::Tensor* order = find_order(op, call, dims, i);
      return order ? iterator_strides(dims, std::array{PointwiseArg(*order)}) : Dims();
    }
    case ResultLayout::kFormatOfOperand: {
      const at::Tensor* order = find_order(op, call, dims, i);
      return order ? format_strides(dims, order->suggest_memory_format()) : Dims();
    }
    case ResultLayout::kPlainFormatOfOperand: {
      const at::Tensor* order = find_order(op, call, dims, i);
      return order && !order->is_contiguous() ? format_strides(dims, order->suggest_memory_format()) : Dims();
    }
    case ResultLayout::kOfOperands: {
      std::vector<PointwiseArg> args(call.tensors.begin(), call.tensors.end());
      return iterator_strides(dims, args);
    }
    case ResultLayout::kIndexed:
      return indexed_strides(dims, call.tensors[0], std::span(call.tensors).subspan(1));
    case ResultLayout::kChannelsLast:
      return channels_last_or_none(call, dims, /*of_all=*/false);
    case ResultLayout::kChannelsLastOfAll:
      return is_flat(attrs) ? Dims() : channels_last_or_none(call, dims, /*of_all=*/true);
    case ResultLayout::kAttention:
      return heads_last_strides(dims);
    case ResultLayout::kColumnMajor:
      // Results of a lower rank than the matrices are vectors.
      return call.tensors[0].dim() == static_cast<int64_t>(dims.size()) ? column_major_strides(dims) : Dims();
    case ResultLayout::kPad: {
      bool adds = adds_elements(std::get<Dims>(attrs[0]));
      return adds ? channels_last_or_none(call, dims, /*of_all=*/false) : clone_strides(dims, to_dims(call.tensors[0].strides()));
    }
    case ResultLayout::kConvolution: {
      Dims strides = channels_last_or_none(call, dims, /*of_all=*/false);
      return strides.empty() || is_channels_last_kernel(op, call, attrs) ? strides : Dims();
    }
    case ResultLayout::kSpectrum: {
      const at::Tensor& from = call.tensors[0];
      Type type{to_dtype(from.scalar_type()), to_dims(from.sizes())};
      return spectrum_strides(type, to_dims(from.strides()), std::get<Dims>(attrs[0]), result);
    }
    default:
      return {};
  }
}

} // namespace torch_xla
