// Orders and scans. NaN is the largest number, as ATen has it; of equal elements the first comes first.
#include <limits>

#include "stablehlo/index.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

Hlo no_nan(const Hlo& x) {
  return x.text().constant_int(0, {DType::Bool, x.dims()});
}

Hlo nan_mask(const Hlo& x) {
  return is_float(x.dtype()) ? is_nan(x) : no_nan(x);
}

// Whether a comes before b.
Hlo precedes(const Hlo& a, const Hlo& b, bool descending) {
  Hlo plain = descending ? a > b : a < b;
  if (!is_float(a.dtype())) {
    return plain;
  }
  const Hlo& last = descending ? a : b; // the side that may be NaN
  const Hlo& other = descending ? b : a;
  return plain | (is_nan(last) & !is_nan(other));
}

Hlo positions(const Hlo& x, size_t dim) {
  return iota(x.text(), x.dims(), dim, index_type(x.dim(dim)));
}

struct Sorted {
  Hlo values;
  Hlo indices; // of index_type()
};

Sorted sort_with_indices(Hlo x, size_t dim, bool descending) {
  Hlo index = positions(x, dim);
  Hlos sorted = sort({x, index}, dim, [&](const Hlos& a, const Hlos& b) { return precedes(a[0], b[0], descending); });
  return {sorted[0], sorted[1]};
}

// A 0-d operand is a vector of one.
Hlo vector_of(const Hlo& x) {
  return x.rank() == 0 ? reshape(x, {1}) : x;
}

// sort: attributes dim, descending, after `stable` in the other row.
template <size_t Dim>
void write_sort(Call& c) {
  Hlo x = vector_of(c[0]);
  size_t dim = c.get_dim(Dim, x.rank());
  bool descending = c.get_bool(Dim + 1);
  if (!c.is_read(1)) {
    c.set(0, sort({x}, dim, [&](const Hlos& a, const Hlos& b) { return precedes(a[0], b[0], descending); })[0]);
    return;
  }
  Sorted sorted = sort_with_indices(x, dim, descending);
  c.set(0, sorted.values);
  c.set(1, sorted.indices);
}

// The first k along dim, of numbers that float32 holds. Float16 has no form of its own in libtpu: it would become a sort.
Sorted top_k(Hlo x, size_t dim, int64_t k, bool largest) {
  size_t last = x.rank() - 1;
  Hlo row = move_dim(x.dtype() == DType::F16 ? convert(x, DType::F32) : x, dim, last);
  row = select(
      is_nan(row),
      constant_like(row, std::numeric_limits<double>::quiet_NaN()),
      row); // without a sign: one with it is less than all numbers
  row = largest ? row : -row;
  Dims dims = with(row.dims(), last, k);
  Hlos best = x.text().op("chlo.top_k", {row}, {{"k", int_text(k)}}, {{row.dtype(), dims}, {DType::I32, dims}});
  return {move_dim(largest ? best[0] : -best[0], last, dim), move_dim(best[1], last, dim)};
}

// Attributes k, dim: the first k, by attribute largest, or the k-th alone.
template <bool IsTop>
void write_ranked(Call& c) {
  Hlo x = vector_of(c[0]);
  size_t dim = c.get_dim(1, x.rank());
  int64_t k = c.get_int(0);
  bool largest = IsTop && c.get_bool(2, true);
  if (IsTop && k > 0 && c.text().target.has_top_k && (x.dtype() == DType::F32 || is_reduced_float(x.dtype()))) {
    Sorted best = top_k(x, dim, k, largest);
    c.set(0, best.values);
    c.set(1, best.indices);
    return;
  }
  Sorted sorted = sort_with_indices(x, dim, largest);
  c.set(0, slice_dim(sorted.values, dim, IsTop ? 0 : k - 1, k));
  c.set(1, slice_dim(sorted.indices, dim, IsTop ? 0 : k - 1, k));
}

// ---- Medians: the lower of the middle ones ----

// NaN counts where IgnoreNan is false: then one makes the result NaN.
template <bool IgnoreNan>
Sorted median(const Hlo& x, size_t dim) {
  Sorted sorted = sort_with_indices(x, dim, false);
  int64_t n = x.dim(dim);
  Dims kept = with(x.dims(), dim, 1);
  Hlo nans = reshape(reduce_sum(convert(nan_mask(x), sorted.indices.dtype()), {static_cast<int64_t>(dim)}), kept);
  Hlo present = constant_like(nans, static_cast<double>(n)) - nans;
  Hlo middle = maximum(present - 1, constant_like(present, 0)) / 2;
  Hlo k = IgnoreNan ? middle : select(nans > 0, present, middle);
  return {take_along(sorted.values, k, dim), take_along(sorted.indices, k, dim)};
}

template <bool IgnoreNan>
void write_median_dim(Call& c) {
  Hlo x = vector_of(c[0]);
  Sorted m = median<IgnoreNan>(x, c.get_dim(0, x.rank()));
  c.set(0, m.values);
  c.set(1, m.indices);
}

template <bool IgnoreNan>
void write_median(Call& c) {
  c.set(0, median<IgnoreNan>(flatten(c[0]), 0).values);
}

// ---- Extrema with their positions: NaN before all, of equal elements the first ----

template <bool Largest>
Hlos first_extremum(const Hlos& a, const Hlos& b) {
  Hlo before = Largest ? a[0] > b[0] : a[0] < b[0];
  Hlo same = a[0] == b[0];
  if (is_float(a[0].dtype())) {
    Hlo a_nan = is_nan(a[0]);
    Hlo b_nan = is_nan(b[0]);
    before = before | (a_nan & !b_nan);
    same = same | (a_nan & b_nan);
  }
  Hlo a_wins = before | (same & (a[1] < b[1]));
  return {select(a_wins, a[0], b[0]), select(a_wins, a[1], b[1])};
}

template <bool Largest>
Hlo extreme_value(const Hlo& x, size_t dim) {
  Hlo init = Largest ? lowest(x.text(), x.dtype()) : highest(x.text(), x.dtype());
  return reduce_extremum(Largest, x, init, {static_cast<int64_t>(dim)});
}

// Where x is the extreme value: the first such place.
Hlo first_place(const Hlo& x, const Hlo& value, size_t dim) {
  Hlo wide = reshape(value, with(x.dims(), dim, 1));
  Hlo places = select((x == wide) | nan_mask(x), positions(x, dim), static_cast<double>(x.dim(dim)));
  return reduce_extremum(false, places, highest(x.text(), places.dtype()), {static_cast<int64_t>(dim)});
}

template <bool Largest>
Sorted find_extremum(const Hlo& x, size_t dim) {
  if (!x.text().target.reduces_pairs) {
    Hlo value = extreme_value<Largest>(x, dim);
    return {value, first_place(x, value, dim)};
  }
  Hlo index = positions(x, dim);
  Hlos init{Largest ? lowest(x.text(), x.dtype()) : highest(x.text(), x.dtype()), highest(x.text(), index.dtype())};
  Hlos found = reduce({x, index}, init, {static_cast<int64_t>(dim)}, first_extremum<Largest>);
  return {found[0], found[1]};
}

// Attribute dim, or none for all elements; results the position, or the extremum and the position.
template <bool Largest>
void write_extremum(Call& c) {
  Hlo x = c[0].dtype() == DType::Bool ? convert(c[0], DType::I32) : c.computed(0);
  bool is_flat = c.is_none(0) || x.rank() == 0;
  x = is_flat ? flatten(x) : x;
  size_t dim = is_flat ? 0 : c.get_dim(0, x.rank());
  size_t position = c.num_results() - 1;
  if (!c.is_read(position)) {
    c.set(0, extreme_value<Largest>(x, dim));
    return;
  }
  Sorted found = find_extremum<Largest>(x, dim);
  if (position > 0) {
    c.set(0, found.values);
  }
  c.set(position, found.indices);
}

// ---- The most frequent element ----

// The most frequent element, of several the smallest; its last index.
void write_mode(Call& c) {
  Hlo x = vector_of(c[0]);
  size_t dim = c.get_dim(0, x.rank());
  size_t last = x.rank() - 1;
  Sorted sorted = sort_with_indices(x, dim, false);
  x = move_dim(sorted.values, dim, last);
  Dims column = x.dims();
  column.push_back(1);
  Dims row = with(column, last, 1);
  row.back() = x.dim(last);
  Hlo counts = reduce_sum(convert(reshape(x, column) == reshape(x, row), sorted.indices.dtype()), {static_cast<int64_t>(last) + 1});
  // Equal elements are neighbours and have equal counts: the first of the highest counts starts the run.
  Hlo start = reshape(find_extremum<true>(counts, last).indices, with(x.dims(), last, 1));
  Hlo end = start + take_along(counts, start, last) - 1;
  c.set(0, take_along(x, end, last));
  c.set(1, take_along(move_dim(sorted.indices, dim, last), end, last));
}

// ---- Scans ----

template <bool Product>
void write_scan(Call& c) {
  Hlo x = convert(vector_of(c[0]), compute_type(c.result_type(0).dtype));
  c.set(0, running(x, Product ? "multiply" : "add", Product, c.get_dim(0, x.rank())));
}

Hlos log_add(const Hlos& a, const Hlos& b) {
  Hlo top = maximum(a[0], b[0]);
  Hlo difference = unary("abs", a[0] - b[0]);
  Hlo sum = top + unary("log_plus_one", unary("exponential", -difference));
  return {select((a[0] == b[0]) & (unary("abs", a[0]) == std::numeric_limits<double>::infinity()), a[0], sum)};
}

void write_log_scan(Call& c) {
  Hlo x = vector_of(c.computed(0));
  c.set(0, scan({x}, {lowest(c.text(), x.dtype())}, c.get_dim(0, x.rank()), log_add)[0]);
}

// Of equal elements, and of NaNs, the last.
template <bool Largest>
Hlos later_extremum(const Hlos& a, const Hlos& b) {
  Hlo b_wins = Largest ? b[0] >= a[0] : b[0] <= a[0];
  if (is_float(a[0].dtype())) {
    b_wins = (b_wins & !is_nan(a[0])) | is_nan(b[0]);
  }
  return {select(b_wins, b[0], a[0]), select(b_wins, b[1], a[1])};
}

template <bool Largest>
void write_running_extremum(Call& c) {
  Hlo x = vector_of(c[0]);
  size_t dim = c.get_dim(0, x.rank());
  Hlo worst = Largest ? lowest(c.text(), x.dtype()) : highest(c.text(), x.dtype());
  Hlo index = positions(x, dim);
  Hlos results = scan({x, index}, {worst, number<0>(c.text(), index.dtype())}, dim, later_extremum<Largest>);
  c.set(0, results[0]);
  c.set(1, results[1]);
}

constexpr Writer kWriters[] = {
    {"aten::argmax", write_extremum<true>},
    {"aten::argmin", write_extremum<false>},
    {"aten::max.dim", write_extremum<true>},
    {"aten::min.dim", write_extremum<false>},
    {"aten::median.dim", write_median_dim<false>},
    {"aten::nanmedian.dim", write_median_dim<true>},
    {"aten::median", write_median<false>},
    {"aten::nanmedian", write_median<true>},
    {"aten::mode", write_mode},
    {"aten::kthvalue", write_ranked<false>},
    {"aten::sort", write_sort<0>},
    {"aten::sort.stable", write_sort<1>},
    {"aten::topk", write_ranked<true>},
    {"aten::cummax", write_running_extremum<true>},
    {"aten::cummin", write_running_extremum<false>},
    {"aten::cumsum", write_scan<false>},
    {"aten::cumprod", write_scan<true>},
    {"aten::_logcumsumexp", write_log_scan},
};

} // namespace

std::span<const Writer> order_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
