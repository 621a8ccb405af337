// Views and their updates: reshape, slice, transpose and broadcast where a plan exists, else a gather or scatter over element numbers.
#include "stablehlo/view.h"

#include <algorithm>

#include "ir/strides.h"
#include "stablehlo/structured.h"
#include "stablehlo/view_plan.h"

namespace torch_xla::stablehlo {
namespace {

Dims inverse(const Dims& order) {
  Dims result(order.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    result[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return result;
}

Dims permuted(const Dims& dims, const Dims& order) {
  Dims result;
  for (int64_t d : order) {
    result.push_back(dims[static_cast<size_t>(d)]);
  }
  return result;
}

Hlo zero(const Hlo& x) {
  return x.text().constant(0, {x.dtype(), {}});
}

// The element numbers that the view shows.
Hlo element_numbers(Text& text, const ViewGeometry& view, int64_t length) {
  DType dtype = index_type(length);
  Hlo numbers = text.constant_int(view.offset, {dtype, view.dims});
  for (size_t i = 0; i < view.dims.size(); ++i) {
    if (view.dims[i] != 1 && view.strides[i] != 0) {
      Hlo index = iota(text, view.dims, i, dtype);
      numbers = numbers + index * text.constant_int(view.strides[i], index.type());
    }
  }
  return numbers;
}

// The memory of a value's elements: dense in the order of the dims' strides, or with gaps or repeated places.
class Memory {
 public:
  Memory(const Dims& dims, const Dims& strides)
      : place_{dims, strides, dims, strides, 0}, is_dense_(is_dense(dims, strides)), length_(span_elements(dims, strides)) {}

  // Row-major dims of the memory, gaps included.
  Dims extents() const {
    return is_dense_ ? memory_order_dims(place_.dims, place_.strides) : Dims{length_};
  }
  // The memory's elements, in extents().
  Hlo enter(const Hlo& x) const {
    if (is_dense_) {
      return transpose(x, memory_order(place_.dims, place_.strides));
    }
    return scatter(broadcast(zero(x), {length_}), {0}, {numbers(x.text())}, x, 0, combine_replace());
  }
  // Back from the memory's elements in any dims.
  Hlo leave(const Hlo& memory) const {
    if (is_dense_) {
      return from_memory_order(reshape(memory, extents()), place_.dims, place_.strides);
    }
    return gather(flatten(memory), {0}, {numbers(memory.text())}, 0);
  }

 private:
  Hlo numbers(Text& text) const {
    return element_numbers(text, place_, length_);
  }

  ViewGeometry place_;
  bool is_dense_;
  int64_t length_;
};

// Extents of the plan's dims: in the view's order, or slowest first.
Dims walked(const ViewPlan& plan, const Dims& dims, bool in_view_order) {
  std::vector<size_t> order = plan.dims;
  if (in_view_order) {
    std::sort(order.begin(), order.end());
  }
  Dims result;
  for (size_t d : order) {
    result.push_back(dims[d]);
  }
  return result;
}

// For each of the plan's dims in the view's order: its position, slowest first.
Dims places(const ViewPlan& plan) {
  std::vector<size_t> order = plan.dims;
  std::sort(order.begin(), order.end());
  Dims result;
  for (size_t d : order) {
    result.push_back(std::find(plan.dims.begin(), plan.dims.end(), d) - plan.dims.begin());
  }
  return result;
}

// From the plan's dims in the view's order to all dims of the view.
Hlo spread(const Hlo& x, const ViewPlan& plan, const Dims& dims) {
  if (x.type().numel() == num_elements(dims)) {
    return reshape(x, dims);
  }
  std::vector<size_t> order = plan.dims;
  std::sort(order.begin(), order.end());
  Dims mapping;
  for (size_t d : order) {
    mapping.push_back(static_cast<int64_t>(d));
  }
  return broadcast_in_dim(x, dims, mapping);
}

Hlo first_elements(const Hlo& memory, int64_t count) {
  return count == memory.type().numel() ? memory : slice_dim(flatten(memory), 0, 0, count);
}

// The plan with whole parts of an axis as an axis of their own, where the view takes one of equal parts: those of query, key and value.
ViewPlan split_parts(ViewPlan plan) {
  std::vector<ViewAxis> axes;
  for (const ViewAxis& axis : plan.axes) {
    const auto [extent, start, count, step] = axis;
    if (step == 1 && count > 1 && count < extent && extent % count == 0 && start % count == 0) {
      axes.push_back({extent / count, start / count, 1, 1});
      axes.push_back({count, 0, count, 1});
    } else {
      axes.push_back(axis);
    }
  }
  plan.axes = std::move(axes);
  return plan;
}

// Moves the plan's axes of more than one element to the order of the view, those of one before them, and slices then: slices of one value,
// as those of query, key and value, share the transpose.
Hlo slice_transposed(const Hlo& part, const ViewPlan& plan, const Dims& order) {
  Dims walked_axes;
  Dims axes;
  for (size_t i = 0; i < plan.axes.size(); ++i) {
    (plan.axes[i].count > 1 ? walked_axes : axes).push_back(static_cast<int64_t>(i));
  }
  for (int64_t axis : permuted(walked_axes, order)) {
    axes.push_back(axis);
  }
  Hlo turned = transpose(reshape(part, plan.extents()), axes);
  return slice(turned, permuted(plan.starts(), axes), permuted(plan.limits(), axes), permuted(plan.steps(), axes));
}

Hlo take_plan(const Hlo& memory, const ViewPlan& plan, const Dims& dims) {
  constexpr int64_t kMostParts = 8; // of the memory: a transpose before a smaller slice would cost more than it saves
  Hlo part = first_elements(memory, plan.length);
  Dims order = places(plan);
  Dims sorted = order;
  std::sort(sorted.begin(), sorted.end());
  const bool turns = order != sorted;
  if (turns && !plan.is_whole() && plan.length <= kMostParts * num_elements(plan.counts())) {
    part = slice_transposed(part, split_parts(plan), order);
  } else {
    if (!plan.is_whole()) {
      part = slice(reshape(part, plan.extents()), plan.starts(), plan.limits(), plan.steps());
    }
    part = turns ? transpose(reshape(part, walked(plan, dims, false)), order) : part;
  }
  if (part.type().numel() == num_elements(dims)) {
    return reshape(part, dims);
  }
  return spread(reshape(part, walked(plan, dims, true)), plan, dims);
}

// Keeps only the last of the elements written to one place.
Hlo drop_repeats(Hlo update, const ViewGeometry& view) {
  for (size_t i = 0; i < view.dims.size(); ++i) {
    if (view.strides[i] == 0) {
      update = slice_dim(update, i, view.dims[i] - 1, view.dims[i]);
    }
  }
  return update;
}

// Update in the dims of the plan's axes.
Hlo arrange(const Hlo& update, const ViewPlan& plan, const ViewGeometry& view) {
  Hlo part = reshape(drop_repeats(update, view), walked(plan, view.dims, true));
  return reshape(transpose(part, inverse(places(plan))), plan.counts());
}

Hlo put_stepping(const Hlo& memory, const Hlo& part, const ViewPlan& plan) {
  Dims high;
  Dims interior;
  for (const ViewAxis& axis : plan.axes) {
    high.push_back(axis.extent - axis.start - (axis.count - 1) * axis.step - 1);
    interior.push_back(axis.step - 1);
  }
  Text& text = part.text();
  Hlo spread_out = pad(part, zero(part), plan.starts(), high, interior);
  Hlo ones = text.constant_int(1, {DType::Bool, part.dims()});
  Hlo mask = pad(ones, text.constant_int(0, {DType::Bool, {}}), plan.starts(), high, interior);
  return select(mask, spread_out, memory);
}

Hlo put_plan(const Hlo& memory, const Hlo& part, const ViewPlan& plan) {
  if (plan.is_whole()) {
    return part;
  }
  Hlo target = reshape(memory, plan.extents());
  if (plan.has_steps()) {
    return put_stepping(target, part, plan);
  }
  Hlos starts;
  for (int64_t start : plan.starts()) {
    starts.push_back(part.text().constant_int(start, {DType::I32, {}}));
  }
  return dynamic_update_slice(target, part, starts);
}

} // namespace

Dims memory_order_dims(const Dims& dims, const Dims& strides) {
  return permuted(dims, memory_order(dims, strides));
}

Hlo from_memory_order(Hlo x, const Dims& dims, const Dims& strides) {
  return transpose(x, inverse(memory_order(dims, strides)));
}

Hlo write_view(Hlo x, const ViewGeometry& view) {
  if (num_elements(view.dims) == 0) {
    return x.text().constant(0, {x.dtype(), view.dims});
  }
  Memory memory(view.base_dims, view.base_strides);
  Hlo elements = memory.enter(x);
  if (auto plan = plan_view(memory.extents(), view.dims, view.strides, view.offset)) {
    return take_plan(elements, *plan, view.dims);
  }
  return gather(flatten(elements), {0}, {element_numbers(x.text(), view, elements.type().numel())}, 0);
}

Hlo write_view_update(Hlo x, Hlo update, const ViewGeometry& view) {
  if (num_elements(view.dims) == 0) {
    return x;
  }
  Memory memory(view.base_dims, view.base_strides);
  Hlo elements = memory.enter(x);
  auto plan = plan_view(memory.extents(), view.dims, view.strides, view.offset);
  if (plan && plan->length == elements.type().numel()) {
    return memory.leave(put_plan(elements, arrange(update, *plan, view), *plan));
  }
  Hlo numbers = element_numbers(x.text(), view, elements.type().numel());
  return memory.leave(scatter(flatten(elements), {0}, {numbers}, update, 0, combine_replace()));
}

} // namespace torch_xla::stablehlo
