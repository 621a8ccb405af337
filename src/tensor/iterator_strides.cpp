// The memory order of a new result, as at::TensorIterator finds it.
#include "tensor/cell.h"
#include "tensor/pointwise.h"

namespace torch_xla {
namespace {

// Operand strides over the result's dims, 0 where the operand is broadcast.
Dims expanded_strides(const at::Tensor& t, const Dims& dims) {
  Dims strides(dims.size(), 0);
  size_t lead = dims.size() - static_cast<size_t>(t.dim());
  for (int64_t i = 0; i < t.dim(); ++i) {
    size_t d = lead + static_cast<size_t>(i);
    strides[d] = t.size(i) == 1 && dims[d] != 1 ? 0 : t.stride(i);
  }
  return strides;
}

// 1: dim a should lie outside dim b, -1: inside, 0: no operand tells.
int compare_dims(size_t a, size_t b, const Dims& dims, const std::vector<Dims>& operands) {
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

// Dims from the innermost outwards: TensorIterator's insertion sort, which starts from row-major.
std::vector<size_t> memory_order(const Dims& dims, const std::vector<Dims>& operands) {
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

bool all_contiguous(const Dims& dims, std::span<const PointwiseArg> args) {
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && arg.tensor->defined() && arg.tensor->dim() > 0 &&
        !(arg.tensor->sizes() == to_ref(dims) && arg.tensor->is_contiguous())) {
      return false;
    }
  }
  return true;
}

} // namespace

Dims iterator_strides(const Dims& dims, std::span<const PointwiseArg> args) {
  if (all_contiguous(dims, args)) {
    return {};
  }
  std::vector<Dims> operands;
  for (const PointwiseArg& arg : args) {
    if (arg.tensor && arg.tensor->defined() && arg.tensor->dim() > 0) {
      operands.push_back(expanded_strides(*arg.tensor, dims));
    }
  }
  std::vector<size_t> order = memory_order(dims, operands);
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

} // namespace torch_xla
