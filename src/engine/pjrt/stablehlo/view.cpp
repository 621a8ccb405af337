// Views and their updates: reshape, slice, transpose and broadcast where a plan exists, else a gather or scatter over element numbers.
#include <algorithm>

#include "core/errors.h"
#include "engine/pjrt/stablehlo/primitive.h"
#include "engine/pjrt/stablehlo/view_plan.h"

namespace torch_xla::stablehlo {
namespace {

// Dims by their stride, slowest first; dims of one element come first, as their stride says nothing.
Dims memory_order(const Dims& dims, const Dims& strides) {
  Dims order;
  for (size_t i = 0; i < dims.size(); ++i) {
    order.push_back(static_cast<int64_t>(i));
  }
  auto rank = [&](int64_t d) { return std::pair(dims[static_cast<size_t>(d)] != 1, -strides[static_cast<size_t>(d)]); };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return rank(a) < rank(b); });
  return order;
}

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

// Where the elements of a value lie: its dims in memory order, then one of a single element; each may have a gap after its elements.
class Memory {
 public:
  Memory(const Dims& dims, const Dims& strides) : order_(memory_order(dims, strides)), ordered_(permuted(dims, order_)) {
    for (int64_t d : order_) {
      if (dims[static_cast<size_t>(d)] != 1) {
        filled_.push_back(dims[static_cast<size_t>(d)]);
        steps_.push_back(strides[static_cast<size_t>(d)]);
      }
    }
    filled_.push_back(1);
    steps_.push_back(1);
    extents_ = filled_;
    for (size_t i = 1; i < filled_.size(); ++i) {
      int64_t room = steps_[i] > 0 ? steps_[i - 1] / steps_[i] : 0;
      XLA_CHECK_KIND(
          NotImplemented, room >= filled_[i] && room * steps_[i] == steps_[i - 1], "a view of memory whose elements overlap or are skewed");
      extents_[i] = room;
    }
  }

  // Row-major dims of the memory, gaps included.
  const Dims& extents() const {
    return extents_;
  }
  // The memory's elements, in extents() or in dims of the same row-major order.
  Hlo enter(const Hlo& x) const {
    Hlo ordered = transpose(x, order_);
    return has_gaps() ? pad(reshape(ordered, filled_), zero(x), none(), gaps(), none()) : ordered;
  }
  // Back from the memory's elements in any dims.
  Hlo leave(const Hlo& memory) const {
    Hlo filled = has_gaps() ? slice(reshape(memory, extents_), none(), filled_, Dims(filled_.size(), 1)) : memory;
    return transpose(reshape(filled, ordered_), inverse(order_));
  }

 private:
  bool has_gaps() const {
    return filled_ != extents_;
  }
  Dims none() const {
    return Dims(filled_.size(), 0);
  }
  Dims gaps() const {
    Dims result;
    for (size_t i = 0; i < filled_.size(); ++i) {
      result.push_back(extents_[i] - filled_[i]);
    }
    return result;
  }

  Dims order_;
  Dims ordered_; // all dims, in memory order
  Dims filled_; // those of more than one element, and 1
  Dims steps_; // their strides, and 1
  Dims extents_;
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

// By dim of the view among the plan's: its place slowest first.
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

Hlo take_plan(const Hlo& memory, const ViewPlan& plan, const Dims& dims) {
  Hlo part = first_elements(memory, plan.length);
  if (!plan.is_whole()) {
    part = slice(reshape(part, plan.extents()), plan.starts(), plan.limits(), plan.steps());
  }
  Dims order = places(plan);
  Dims sorted = order;
  std::sort(sorted.begin(), sorted.end());
  part = order == sorted ? part : transpose(reshape(part, walked(plan, dims, false)), order);
  if (part.type().numel() == num_elements(dims)) {
    return reshape(part, dims);
  }
  return spread(reshape(part, walked(plan, dims, true)), plan, dims);
}

// The element numbers that the view shows.
Hlo element_numbers(Text& text, const ViewGeometry& view, int64_t length) {
  DType dtype = length <= INT32_MAX ? DType::I32 : DType::I64;
  Hlo numbers = text.constant_int(view.offset, {dtype, view.dims});
  for (size_t i = 0; i < view.dims.size(); ++i) {
    if (view.dims[i] != 1 && view.strides[i] != 0) {
      Hlo index = iota(text, view.dims, i, dtype);
      numbers = numbers + index * text.constant_int(view.strides[i], index.type());
    }
  }
  return numbers;
}

// The last of the elements that are written to one place.
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
