// Order, density and extent of memory by its strides.
#include "ir/strides.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

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

Dims readable_strides(const Dims& dims, Dims strides) {
  for (size_t d = 0; d < dims.size(); ++d) {
    strides[d] = dims[d] == 1 && strides[d] == 0 ? 1 : strides[d];
  }
  return strides;
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

// One transform; `over` in the order in which its dims lie in memory, the last one innermost.
static Dims transform_strides(const Dims& strides, std::span<const int64_t> over, const Dims& to) {
  std::vector<int64_t> order(to.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  auto is_batch = [&](int64_t d) { return std::find(over.begin(), over.end(), d) == over.end(); };
  auto batch_end = std::partition(order.begin(), order.end(), is_batch); // may swap equal dims, as ATen's does
  std::sort(order.begin(), batch_end, [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  std::copy(over.begin(), over.end(), batch_end);
  Dims result(to.size(), 1);
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    result[static_cast<size_t>(order[i])] = step;
    step *= to[static_cast<size_t>(order[i])];
  }
  return result;
}

Dims spectrum_strides(const Type& from, const Dims& strides, const Dims& over, const Type& to) {
  if (over.empty()) {
    return strides;
  }
  bool to_real = is_float(to.dtype);
  std::vector<int64_t> order(over.begin(), over.end());
  bool last_stays = to_real || is_float(from.dtype);
  std::sort(order.begin(), order.end() - last_stays, [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  if (!to_real || order.size() == 1) {
    return transform_strides(strides, order, to.dims);
  }
  // Complex numbers over all dims but the last, then to real ones over that.
  std::span<const int64_t> all(order);
  return transform_strides(transform_strides(strides, all.first(all.size() - 1), from.dims), all.last(1), to.dims);
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
