// Order, density and extent of memory by its strides.
#include "ir/strides.h"

#include <algorithm>
#include <utility>

namespace torch_xla {

Dims memory_order(const Dims& dims, const Dims& strides) {
  Dims order;
  for (size_t i = 0; i < dims.size(); ++i) {
    order.push_back(static_cast<int64_t>(i));
  }
  auto rank = [&](int64_t d) { return std::pair(dims[static_cast<size_t>(d)] != 1, -strides[static_cast<size_t>(d)]); };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return rank(a) < rank(b); });
  return order;
}

Dims column_major_strides(const Dims& dims) {
  Dims strides = contiguous_strides(dims);
  const size_t rank = dims.size();
  strides[rank - 2] = 1;
  strides[rank - 1] = dims[rank - 2];
  return strides;
}

Dims heads_last_strides(const Dims& dims) {
  if (dims.size() == 3) {
    return {dims[1] * dims[2], 1, dims[1]};
  }
  return {dims[1] * dims[2] * dims[3], dims[3], dims[1] * dims[3], 1};
}

bool is_dense(const Dims& dims, const Dims& strides) {
  if (num_elements(dims) <= 1) {
    return true;
  }
  Dims order = memory_order(dims, strides);
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    auto d = static_cast<size_t>(order[i]);
    if (dims[d] != 1 && strides[d] != step) {
      return false;
    }
    step *= dims[d];
  }
  return true;
}

bool same_strides(const Dims& dims, const Dims& a, const Dims& b) {
  if (a.size() != dims.size() || b.size() != dims.size()) {
    return false;
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] > 1 && a[d] != b[d]) {
      return false;
    }
  }
  return true;
}

int64_t span_elements(const Dims& dims, const Dims& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == 0) {
      return 0;
    }
    last += (dims[d] - 1) * strides[d];
  }
  return last + 1;
}

} // namespace torch_xla
