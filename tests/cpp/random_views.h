// Random geometries of views, and which elements a view shows.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "ir/view.h"

namespace torch_xla::testing {

// For each element of the result, the element of the operand's memory.
inline std::vector<int64_t> addresses(const ViewGeometry& view) {
  std::vector<int64_t> list{view.offset};
  for (size_t i = 0; i < view.dims.size(); ++i) {
    std::vector<int64_t> longer;
    for (int64_t address : list) {
      for (int64_t k = 0; k < view.dims[i]; ++k) {
        longer.push_back(address + k * view.strides[i]);
      }
    }
    list = std::move(longer);
  }
  return list;
}

class RandomViews {
 public:
  explicit RandomViews(unsigned seed) : random_(seed) {}

  int64_t draw(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random_);
  }
  Dims draw_dims() {
    Dims dims;
    for (int64_t n = draw(0, 3); n > 0; --n) {
      dims.push_back(draw(1, 4));
    }
    return dims;
  }
  // Dense strides in some order of the dims.
  Dims draw_dense_strides(const Dims& dims) {
    std::vector<size_t> order(dims.size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::shuffle(order.begin(), order.end(), random_);
    Dims strides(dims.size(), 1);
    int64_t step = 1;
    for (size_t i : order) {
      strides[i] = step;
      step *= dims[i];
    }
    return strides;
  }
  // Any view that stays inside.
  ViewGeometry draw_view(const Dims& base_dims) {
    ViewGeometry view{base_dims, draw_dense_strides(base_dims), draw_dims(), Dims(), 0};
    int64_t room = num_elements(base_dims) - 1;
    view.offset = draw(0, 1) ? draw(0, room) : 0;
    room -= view.offset;
    for (int64_t d : view.dims) {
      int64_t stride = draw(0, d > 1 ? room / (d - 1) : 12);
      view.strides.push_back(stride);
      room -= stride * (d - 1);
    }
    return view;
  }
  // The memory's order in other dims, or with the dims permuted.
  ViewGeometry draw_reshape(const Dims& base_dims) {
    ViewGeometry view{base_dims, draw_dense_strides(base_dims), base_dims, Dims(), 0};
    if (draw(0, 1)) {
      view.dims = {num_elements(base_dims)};
    }
    view.strides = draw_dense_strides(view.dims);
    return view;
  }
  ViewGeometry draw_either(const Dims& base_dims) {
    return draw(0, 2) ? draw_reshape(base_dims) : draw_view(base_dims);
  }

 private:
  std::mt19937 random_;
};

} // namespace torch_xla::testing
