// Writes at indices. For repeated indices, sums and the like are computed in float32 for the 16-bit floats, except an embedding's; updates
// out of range are dropped: a program on such an engine cannot raise.
#include <algorithm>
#include <string_view>

#include "core/errors.h"
#include "ops/rules.h"
#include "stablehlo/index.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

// How updates are combined, by the names of scatter's and index_reduce's reductions.
struct Reduction {
  std::string_view name;
  Combine (*combine)();
  Hlo (*neutral)(Text& text, DType dtype);
};

constexpr Reduction kReductions[] = {
    {"add", [] { return combine_by("add"); }, number<0>},
    {"sum", [] { return combine_by("add"); }, number<0>},
    {"mean", [] { return combine_by("add"); }, number<0>},
    {"multiply", [] { return combine_by("multiply"); }, number<1>},
    {"prod", [] { return combine_by("multiply"); }, number<1>},
    {"amax", [] { return combine_extremum(true); }, lowest},
    {"amin", [] { return combine_extremum(false); }, highest},
};

const Reduction& find_reduction(std::string_view name) {
  for (const Reduction& r : kReductions) {
    if (r.name == name) {
      return r;
    }
  }
  throw InternalError(str("no reduction ", name));
}

// The target of a scatter: the elements of self for the updates.
struct Target {
  Hlo self;
  std::vector<size_t> dims;
  Hlos coordinates;
  size_t at = 0;

  // Bools are summed as numbers: not every compiler takes a scatter with `or`.
  Hlo add(Hlo base, Hlo updates) const {
    if (base.dtype() == DType::Bool) {
      return add(convert(base, DType::I32), updates) != 0;
    }
    return put(base, updates, combine_by("add"));
  }
  Hlo put(Hlo base, Hlo updates, const Combine& combine) const {
    return scatter(base, dims, coordinates, convert(updates, base.dtype()), at, combine);
  }
};

// scatter*: the index is as large as the updates.
Target point_target(const Call& c) {
  Dims dims = c[0].rank() == 0 ? Dims{1} : c[0].dims();
  Dims points = c[1].rank() == 0 ? Dims{1} : c[1].dims();
  return {reshape(c.computed(0), dims), dims_up_to(dims.size()), point_coordinates(reshape(c[1], points), c.get_dim(0, c[0].rank())), 0};
}

// index_*: the index is a vector along dim.
Target along_target(const Call& c) {
  return {c.computed(0), {c.get_dim(0, c[0].rank())}, {wide_index(c[1])}, c.get_dim(0, c[0].rank())};
}

// The updates of scatter*: the part of the source with the index's extents.
Hlo updates_of(const Call& c, const Target& target) {
  Hlo source = c.computed(2);
  const Dims& points = target.coordinates[0].dims();
  source = source.rank() == 0 ? reshape(source, {1}) : source;
  return slice(source, Dims(points.size(), 0), points, Dims(points.size(), 1));
}

Hlo number_attr(const Call& c, size_t i, DType dtype, Text& text) {
  if (auto* value = std::get_if<double>(&c.attr(i)); value && is_float(dtype)) {
    return text.constant(round_to(dtype, *value), {dtype, {}});
  }
  int64_t whole = std::holds_alternative<double>(c.attr(i)) ? static_cast<int64_t>(c.get_double(i)) : c.get_int(i);
  return text.constant_int(is_float(dtype) ? whole : wrap_to(dtype, whole), {dtype, {}});
}

// Attributes dim, a number where no operand is written, and the name of a reduction, if there is one.
void write_scatter(Call& c) {
  Target target = point_target(c);
  Hlo updates = c.size() > 2 ? updates_of(c, target) : number_attr(c, 1, target.self.dtype(), c.text());
  const auto* name = std::get_if<std::string>(&c.attr(c.num_attrs() - 1));
  c.set(0, target.put(target.self, updates, name ? find_reduction(*name).combine() : combine_replace()));
}

void write_scatter_add(Call& c) {
  Target target = point_target(c);
  c.set(0, target.put(target.self, updates_of(c, target), combine_by("add")));
}

// Rounded down for integers, as ATen's.
Hlo mean(const Hlo& sum, const Hlo& count) {
  Hlo quotient = sum / count;
  if (is_float(sum.dtype())) {
    return quotient;
  }
  Hlo rounded_up = (quotient * count != sum) & (sum < 0);
  return select(rounded_up, quotient - 1, quotient);
}

// Attributes dim, reduction, include_self. Elements without an update stay as they are.
void reduce_into(Call& c, const Target& target, const Hlo& updates) {
  std::string name = std::get<std::string>(c.attr(1));
  const Reduction& r = find_reduction(name);
  bool with_self = c.get_bool(2, true);
  Hlo one = constant_like(updates, 1);
  Hlo count = target.put(constant_like(target.self, 0), one, combine_by("add"));
  Hlo touched = count > 0;
  Hlo base = with_self ? target.self : select(touched, r.neutral(c.text(), target.self.dtype()), target.self);
  Hlo result = target.put(base, updates, r.combine());
  if (name == "mean") {
    Hlo parts = with_self ? count + 1 : select(touched, count, constant_like(count, 1));
    result = select(touched, mean(result, parts), target.self);
  }
  c.set(0, result);
}

void write_scatter_reduce_two(Call& c) {
  Target target = point_target(c);
  reduce_into(c, target, updates_of(c, target));
}

void write_index_reduce(Call& c) {
  reduce_into(c, along_target(c), c.computed(2));
}

// Attribute alpha after dim.
void write_index_add(Call& c) {
  Target target = along_target(c);
  Hlo updates = c.computed(2);
  bool scaled = c.num_attrs() > 1 && c.get_double(1, 1) != 1;
  updates = scaled ? updates * number_attr(c, 1, updates.dtype(), c.text()) : updates;
  c.set(0, target.add(target.self, updates));
}

void write_index_copy(Call& c) {
  Target target = along_target(c);
  c.set(0, target.put(target.self, c.computed(2), combine_replace()));
}

void write_index_fill(Call& c) {
  Target target = along_target(c);
  target.coordinates[0] = wrapped_index(target.coordinates[0], target.self.dim(c.get_dim(0, c[0].rank())));
  c.set(0, target.put(target.self, c.size() > 2 ? c.computed(2) : number_attr(c, 1, target.self.dtype(), c.text()), combine_replace()));
}

// Operands gradient, indices; attributes number of weights, padding index, scale_grad_by_freq. 16-bit floats are summed as they are, as by
// ATen's kernel: sums in float32 would write the whole table twice.
void write_embedding_backward(Call& c) {
  Hlo g = c.get_bool(2) ? c.computed(0) : c[0];
  Hlo index = flatten(wide_index(c[1]));
  g = reshape(g, {index.dim(0), g.dims().back()});
  Dims result = c.result_type(0).dims;
  if (c.get_bool(2)) {
    Hlo one = c.text().constant(1, {g.dtype(), index.dims()});
    Hlo counts = scatter(c.text().constant(0, {g.dtype(), {result[0]}}), {0}, {index}, one, 0, combine_by("add"));
    g = g / broadcast_in_dim(gather(counts, {0}, {index}, 0), g.dims(), {0});
  }
  Hlo padding = c.text().constant_int(c.get_int(1, -1), index.type());
  index = select(index == padding, c.text().constant_int(result[0], index.type()), index); // out of range: dropped
  c.set(0, scatter(c.text().constant(0, {g.dtype(), result}), {0}, {index}, g, 0, combine_by("add")));
}

// ---- index_put: operands self, indices, values; attributes their count, accumulate ----

// The operand that is the only index, if it is a mask; else 0.
size_t find_only_mask(const Call& c) {
  size_t found = 0;
  for (size_t i = 1; i <= static_cast<size_t>(c.get_int(0)); ++i) {
    if (c.has(i) && (found != 0 || !is_mask(c, i))) {
      return 0;
    }
    found = c.has(i) ? i : found;
  }
  return found;
}

// dims with some of them, from `at` on, replaced.
Dims spliced(const Dims& dims, size_t at, size_t count, const Dims& by) {
  Dims result(dims.data(), at);
  for (int64_t d : by) {
    result.push_back(d);
  }
  for (size_t i = at + count; i < dims.size(); ++i) {
    result.push_back(dims[i]);
  }
  return result;
}

// Puts the values into self where the mask, the only index, is true: in order, or one value for all.
Hlo masked_put(Call& c, const Hlo& self, const Hlo& mask, Hlo values, const IndexedPart& part) {
  int64_t count = known_places(part, values.dims());
  if (count == 1) {
    bool has_places = values.rank() > part.after;
    Dims dims = has_places ? spliced(values.dims(), values.rank() - 1 - part.after, 1, Dims(mask.rank(), 1)) : values.dims();
    values = broadcast(reshape(values, dims), self.dims());
  } else {
    Hlo order = flatten(convert(mask, DType::I64));
    order = running(order, "add", 0, 0) - 1;
    values = broadcast(values, spliced(self.dims(), part.at, mask.rank(), {count}));
    values = gather(values, {part.at}, {reshape(order, mask.dims())}, part.at);
  }
  Dims mapping;
  for (size_t d = 0; d < mask.rank(); ++d) {
    mapping.push_back(static_cast<int64_t>(part.at + d));
  }
  Hlo put = c.get_bool(1) ? binary(self.dtype() == DType::Bool ? "or" : "add", self, values) : values;
  return select(broadcast_in_dim(mask, self.dims(), mapping), put, self);
}

// The numbers of the true elements in order, then the number of all, which is out of range.
Hlo true_places(const Hlo& mask, int64_t length) {
  int64_t all = mask.type().numel();
  Hlo none = mask.text().constant_int(all, {DType::I64, {}});
  Hlo numbers = select(flatten(mask), iota(mask.text(), {all}, 0, DType::I64), none);
  Hlo places = sort({numbers}, 0, [](const Hlos& a, const Hlos& b) { return a[0] < b[0]; })[0];
  return pad_dim(places, none, 0, 0, length - all);
}

// A mask with a single place is broadcast to all places; `known` is 1 if the masks alone give their number.
void repeat_single_places(Hlos& places, const Hlos& masks, int64_t known) {
  Hlos counts;
  for (const Hlo& mask : masks) {
    counts.push_back(reduce_sum(flatten(convert(mask, DType::I64)), {0}));
  }
  Hlo total = constant_like(counts[0], static_cast<double>(known));
  for (const Hlo& count : counts) {
    total = known == 1 ? maximum(total, count) : total;
  }
  Hlo in_use = iota(total.text(), places[0].dims(), 0, DType::I64) < total;
  for (size_t i = 0; i < places.size(); ++i) {
    places[i] = select((counts[i] == 1) & in_use, slice_dim(places[i], 0, 0, 1), places[i]);
  }
}

Hlos read_masks(const Call& c) {
  Hlos masks;
  for (size_t i = 1; i <= static_cast<size_t>(c.get_int(0)); ++i) {
    if (is_mask(c, i)) {
      masks.push_back(convert(c[i], DType::Bool));
    }
  }
  return masks;
}

// For each mask the places of its true elements, padded to their largest number.
Hlos find_mask_places(const Hlos& masks, const IndexedPart& part, const Dims& values) {
  int64_t known = known_places(part, values);
  int64_t length = known;
  for (const Hlo& mask : masks) {
    length = known == 1 ? std::max(length, mask.type().numel()) : length;
  }
  Hlos places;
  for (const Hlo& mask : masks) {
    places.push_back(true_places(mask, length));
  }
  if (masks.size() > 1 || part.points.back() != 1) {
    repeat_single_places(places, masks, known);
  }
  return places;
}

void write_index_put(Call& c) {
  Hlo self = c.computed(0);
  Hlo values = c.computed(c.size() - 1);
  IndexedPart part = read_indices(c);
  if (self.type().numel() == 0 || values.type().numel() == 0 || num_elements(part.points) == 0) {
    c.set(0, self);
  } else if (size_t mask = find_only_mask(c)) {
    c.set(0, masked_put(c, self, convert(c[mask], DType::Bool), values, part));
  } else {
    Hlos masks = read_masks(c);
    Indexed indexed = read_indexed(c, self, masks.empty() ? Hlos() : find_mask_places(masks, part, values.dims()));
    Target target{self, indexed.dims, indexed.coordinates, indexed.at};
    c.set(0, c.get_bool(1) ? target.add(self, values) : target.put(self, values, combine_replace()));
  }
}

constexpr Writer kWriters[] = {
    {"aten::scatter.src", write_scatter},
    {"aten::scatter.value", write_scatter},
    {"aten::scatter.reduce", write_scatter},
    {"aten::scatter.value_reduce", write_scatter},
    {"aten::scatter_add", write_scatter_add},
    {"aten::scatter_reduce.two", write_scatter_reduce_two},
    {"aten::index_add", write_index_add},
    {"aten::index_copy", write_index_copy},
    {"aten::index_reduce", write_index_reduce},
    {"aten::index_fill.int_Scalar", write_index_fill},
    {"aten::index_fill.int_Tensor", write_index_fill},
    {"aten::embedding_dense_backward", write_embedding_backward},
    {"aten::index_put", write_index_put},
    {"aten::_index_put_impl_", write_index_put},
};

} // namespace

std::span<const Writer> scatter_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
