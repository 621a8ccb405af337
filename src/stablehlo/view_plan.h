// View plans: a view of dense memory as one multi-dimensional slice of that memory under other dims.
#pragma once

#include <optional>
#include <vector>

#include "core/inline_vec.h"

namespace torch_xla::stablehlo {

// One dim of the memory as the plan splits it; the view takes `count` elements from `start` on, `step` apart.
struct ViewAxis {
  int64_t extent;
  int64_t start;
  int64_t count;
  int64_t step;
};

struct ViewPlan {
  int64_t length; // number of elements of memory that the axes cover, from the first element on
  std::vector<ViewAxis> axes; // slowest first
  std::vector<size_t> dims; // the view's dims with a step, slowest first: they match the axes of more than one element, in order

  Dims extents() const;
  Dims counts() const;
  // The slice: first elements, ends and steps.
  Dims starts() const;
  Dims limits() const;
  Dims steps() const;
  bool is_whole() const; // takes every element of each axis
  bool has_steps() const;
};

// Memory is row-major with the given extents; dims, strides and offset are the view's, in elements, none negative. Nothing for views that
// show an element twice (except by stride 0: the plan omits such dims), or with steps that fit no split of the memory.
std::optional<ViewPlan> plan_view(const Dims& memory, const Dims& dims, const Dims& strides, int64_t offset);

} // namespace torch_xla::stablehlo
