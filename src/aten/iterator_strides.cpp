// The memory order of a new result, by at::TensorIterator's rule.
#include <ATen/ExpandUtils.h>

#include <optional>

#include "aten/result_strides.h"
#include "trace/cell.h"

namespace torch_xla {
namespace {

// Operand strides over the result's dims, 0 for broadcast dims. TensorIterator first converts operands of other types, which gives elements
// on shared memory their own places.
Dims expanded_strides(const at::Tensor& t, const Dims& dims, DType common) {
  bool copied = common != DType::Undefined && to_dtype(t.scalar_type()) != common && !t.is_non_overlapping_and_dense();
  Dims own = copied ? Dims(at::infer_dense_strides(t.sizes(), t.strides())) : to_dims(t.strides());
  Dims strides(dims.size(), 0);
  size_t lead = dims.size() - own.size();
  for (size_t i = 0; i < own.size(); ++i) {
    size_t d = lead + i;
    strides[d] = t.size(static_cast<int64_t>(i)) == 1 && dims[d] != 1 ? 0 : own[i];
  }
  return strides;
}

// 1: dim a goes outside dim b, -1: inside, 0: no operand decides.
int compare_dims(size_t a, size_t b, const Dims& dims, std::span<const Dims> operands) {
  for (const Dims& strides : operands) {
    int64_t sa = strides[a];
    int64_t sb = strides[b];
    if (sa == 0 || sb == 0) {
      continue;
    }
    if (sa != sb) {
      return sa < sb ? -1 : 1;
    }
    if (dims[a] > dims[b]) {
      return 1;
    }
  }
  return 0;
}

// Dims from the innermost outwards: TensorIterator's insertion sort, starting from row-major.
std::vector<size_t> innermost_first(const Dims& dims, std::span<const Dims> operands) {
  std::vector<size_t> order(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    order[i] = dims.size() - 1 - i;
  }
  for (size_t i = 1; i < order.size(); ++i) {
    size_t moving = i;
    for (size_t j = i; j-- > 0;) {
      int comparison = compare_dims(order[j], order[moving], dims, operands);
      if (comparison > 0) {
        std::swap(order[j], order[moving]);
        moving = j;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  return order;
}

bool has_number(std::span<const PointwiseArg> args, bool wraps_numbers) {
  return std::any_of(args.begin(), args.end(), [&](const PointwiseArg& arg) {
    return arg.tensor ? arg.tensor->defined() && arg.tensor->dim() == 0 : arg.scalar && wraps_numbers;
  });
}

// `exactly`: strides of dims of size 1 count too, as beside a number.
bool all_contiguous(const Dims& dims, std::span<const PointwiseArg> args, bool exactly) {
  for (const PointwiseArg& arg : args) {
    if (!arg.tensor || !arg.tensor->defined() || arg.tensor->dim() == 0) {
      continue;
    }
    const at::Tensor& t = *arg.tensor;
    if (t.sizes() != to_ref(dims) || !t.is_contiguous() || (exactly && to_dims(t.strides()) != contiguous_strides(dims))) {
      return false;
    }
  }
  return true;
}

// The common order of all operands, each with the result's sizes: channels-last, or their strides. TensorIterator takes it unchanged, with
// any strides of dims of size 1. Undefined: none.
std::optional<Dims> find_common_order(const Dims& dims, std::span<const PointwiseArg> args) {
  const at::Tensor* first = nullptr;
  bool channels_last = dims.size() == 4;
  bool same = true;
  for (const PointwiseArg& arg : args) {
    if (!arg.tensor || !arg.tensor->defined()) {
      continue;
    }
    const at::Tensor& t = *arg.tensor;
    first = first ? first : &t;
    if (t.sizes() != to_ref(dims)) {
      return std::nullopt;
    }
    channels_last = channels_last && t.is_contiguous(c10::MemoryFormat::ChannelsLast);
    same = same && t.strides() == first->strides() && t.is_non_overlapping_and_dense();
  }
  if (first && channels_last) {
    return format_strides(dims, c10::MemoryFormat::ChannelsLast);
  }
  return first && same ? std::optional(to_dims(first->strides())) : std::nullopt;
}

} // namespace

Dims iterator_strides(const Dims& dims, std::span<const Dims> operands) {
  std::vector<size_t> order = innermost_first(dims, operands);
  if (std::is_sorted(order.rbegin(), order.rend())) {
    return {};
  }
  Dims strides(dims.size(), 1);
  int64_t step = 1;
  for (size_t d : order) {
    strides[d] = step;
    step *= dims[d];
  }
  return strides;
}

Dims iterator_strides(const Dims& dims, std::span<const PointwiseArg> args, const Operands& operands) {
  const bool beside_number = std::find(dims.begin(), dims.end(), 1) != dims.end() && has_number(args, operands.wraps_numbers);
  if (dims.size() < 2 || all_contiguous(dims, args, beside_number)) {
    return {};
  }
  if (std::optional<Dims> order = beside_number ? std::nullopt : find_common_order(dims, args)) {
    return *order;
  }
  std::vector<Dims> strides;
  for (size_t i = 0; i < args.size(); ++i) {
    const at::Tensor* t = args[i].tensor;
    if (t && t->defined() && t->dim() > 0) {
      strides.push_back(expanded_strides(*t, dims, i < operands.first_converted ? DType::Undefined : operands.common));
    }
  }
  return iterator_strides(dims, strides);
}

Dims format_strides(const Dims& dims, c10::MemoryFormat format) {
  switch (format) {
    case c10::MemoryFormat::ChannelsLast:
      return to_dims(c10::get_channels_last_strides_2d(to_ref(dims)));
    case c10::MemoryFormat::ChannelsLast3d:
      return to_dims(c10::get_channels_last_strides_3d(to_ref(dims)));
    default:
      return {};
  }
}

} // namespace torch_xla
