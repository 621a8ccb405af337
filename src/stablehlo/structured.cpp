// Reductions, scans, windows, products, indexing, sorting and loops.
#include "stablehlo/structured.h"

#include <algorithm>
#include <limits>

#include "core/errors.h"

namespace torch_xla::stablehlo {
namespace {

std::vector<Type> types_of(const Hlos& values) {
  std::vector<Type> types;
  for (const Hlo& v : values) {
    types.push_back(v.type());
  }
  return types;
}

// A block over two 0-d elements of each value: all first sides, then all second sides, or side by side.
Region pair_region(const Hlos& values, bool side_by_side, const Combine& combine) {
  Region region;
  size_t n = values.size();
  for (size_t i = 0; i < 2 * n; ++i) {
    region.arguments.push_back({values[side_by_side ? i / 2 : i % n].dtype(), {}});
  }
  region.body = [=](const Hlos& arguments) {
    Hlos a;
    Hlos b;
    for (size_t i = 0; i < n; ++i) {
      a.push_back(arguments[side_by_side ? 2 * i : i]);
      b.push_back(arguments[side_by_side ? 2 * i + 1 : n + i]);
    }
    return combine(a, b);
  };
  return region;
}

Dims other_dims(size_t rank, const Dims& a, const Dims& b) {
  Dims others;
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d) {
    if (std::find(a.begin(), a.end(), d) == a.end() && std::find(b.begin(), b.end(), d) == b.end()) {
      others.push_back(d);
    }
  }
  return others;
}

Hlos joined(const Hlos& a, const Hlos& b) {
  Hlos all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

} // namespace

Combine combine_by(const char* name) {
  return [name](const Hlos& a, const Hlos& b) { return Hlos{binary(name, a[0], b[0])}; };
}

Hlo extremum(bool largest, const Hlo& a, const Hlo& b) {
  if (a.text().target.keeps_nan || !is_float(a.dtype())) {
    return largest ? maximum(a, b) : minimum(a, b);
  }
  return select((largest ? b > a : b < a) | is_nan(b), b, a);
}

Combine combine_extremum(bool largest) {
  return [largest](const Hlos& a, const Hlos& b) { return Hlos{extremum(largest, a[0], b[0])}; };
}

// XLA combines devices' results by plain operations only.
Hlo reduce_extremum(bool largest, Hlo x, Hlo init, const Dims& reduced) {
  if (x.text().target.keeps_nan || !is_float(x.dtype()) || !x.text().is_partitioned()) {
    return reduce({x}, {init}, reduced, combine_extremum(largest))[0];
  }
  Hlo plain = reduce({x}, {init}, reduced, combine_by(largest ? "maximum" : "minimum"))[0];
  return select(reduce(is_nan(x), "or", 0, reduced), constant_like(plain, std::numeric_limits<double>::quiet_NaN()), plain);
}

Combine combine_replace() {
  return [](const Hlos&, const Hlos& b) { return b; };
}

Hlo reduce(Hlo x, const char* name, double init, const Dims& reduced) {
  return reduced.empty() ? x : reduce({x}, {x.text().constant(init, {x.dtype(), {}})}, reduced, combine_by(name))[0];
}

Hlo reduce_sum(Hlo x, const Dims& reduced) {
  return reduce(x, "add", 0, reduced);
}

Hlos reduce(const Hlos& x, const Hlos& init, const Dims& reduced, const Combine& combine) {
  std::vector<Type> results;
  for (const Hlo& v : x) {
    Dims dims;
    for (int64_t d : other_dims(v.rank(), reduced, {})) {
      dims.push_back(v.dim(static_cast<size_t>(d)));
    }
    results.push_back({v.dtype(), dims});
  }
  Dims sorted = reduced;
  std::sort(sorted.begin(), sorted.end());
  return x[0].text().op("reduce", joined(x, init), {{"dimensions", array_text(sorted)}}, results, {pair_region(x, false, combine)});
}

Hlos scan(Hlos x, const Hlos& init, size_t dim, const Combine& combine) {
  int64_t n = x[0].dim(dim);
  for (int64_t step = 1; step < n; step *= 2) {
    Hlos earlier;
    for (size_t i = 0; i < x.size(); ++i) {
      earlier.push_back(pad_dim(x[i], init[i], dim, step, -step));
    }
    x = combine(earlier, x);
  }
  return x;
}

Hlos reduce_window(const Hlos& x, const Hlos& init, const WindowDims& window, const Combine& combine) {
  std::vector<Type> results;
  for (const Hlo& v : x) {
    Dims dims;
    for (size_t i = 0; i < v.rank(); ++i) {
      int64_t span = v.dim(i) + window.low[i] + window.high[i] - window.dilation[i] * (window.size[i] - 1) - 1;
      dims.push_back(span / window.stride[i] + 1);
    }
    results.push_back({v.dtype(), dims});
  }
  Attributes attributes{
      {"window_dimensions", array_text(window.size)},
      {"window_strides", array_text(window.stride)},
      {"base_dilations", array_text(Dims(window.size.size(), 1))},
      {"window_dilations", array_text(window.dilation)},
      {"padding", pairs_text(window.low, window.high)}};
  return x[0].text().op("reduce_window", joined(x, init), attributes, results, {pair_region(x, false, combine)});
}

Hlo running(Hlo x, const char* name, double neutral, size_t dim) {
  int64_t n = x.dim(dim);
  if (n < 2) {
    return x;
  }
  Dims ones(x.rank(), 1);
  Dims none(x.rank(), 0);
  WindowDims window{with(ones, dim, n), ones, with(none, dim, n - 1), none, ones};
  return reduce_window({x}, {x.text().constant(neutral, {x.dtype(), {}})}, window, combine_by(name))[0];
}

namespace {

// x with the dims of a product that is not summed yet: its batch, `before` dims, its own, `after` dims, and the contracted ones last.
Hlo spread_for_product(Hlo x, const Dims& batch, const Dims& own, const Dims& contracted, size_t before, size_t after) {
  Dims order;
  Dims dims;
  auto take = [&](const Dims& part) {
    for (int64_t d : part) {
      order.push_back(d);
      dims.push_back(x.dim(static_cast<size_t>(d)));
    }
  };
  auto fill = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) {
      dims.push_back(1);
    }
  };
  take(batch);
  fill(before);
  take(own);
  fill(after);
  take(contracted);
  return reshape(transpose(x, order), dims);
}

// As a sum of products: TPUs have none of 64-bit integers.
Hlo written_dot(Hlo a, Hlo b, const Dims& a_batch, const Dims& b_batch, const Dims& a_contracted, const Dims& b_contracted) {
  Dims a_own = other_dims(a.rank(), a_batch, a_contracted);
  Dims b_own = other_dims(b.rank(), b_batch, b_contracted);
  Hlo products = spread_for_product(a, a_batch, a_own, a_contracted, 0, b_own.size()) *
      spread_for_product(b, b_batch, b_own, b_contracted, a_own.size(), 0);
  Dims summed;
  for (size_t d = products.rank() - a_contracted.size(); d < products.rank(); ++d) {
    summed.push_back(static_cast<int64_t>(d));
  }
  return reduce_sum(products, summed);
}

} // namespace

Hlo dot(Hlo a, Hlo b, const Dims& a_batch, const Dims& b_batch, const Dims& a_contracted, const Dims& b_contracted) {
  if (a.dtype() == DType::I64) {
    return written_dot(a, b, a_batch, b_batch, a_contracted, b_contracted);
  }
  DType dtype = is_reduced_float(a.dtype()) ? DType::F32 : a.dtype();
  Dims dims;
  for (int64_t d : a_batch) {
    dims.push_back(a.dim(static_cast<size_t>(d)));
  }
  for (int64_t d : other_dims(a.rank(), a_batch, a_contracted)) {
    dims.push_back(a.dim(static_cast<size_t>(d)));
  }
  for (int64_t d : other_dims(b.rank(), b_batch, b_contracted)) {
    dims.push_back(b.dim(static_cast<size_t>(d)));
  }
  std::string numbers = "#stablehlo.dot<";
  if (!a_batch.empty()) {
    numbers += "lhs_batching_dimensions = [" + list_text(a_batch) + "], rhs_batching_dimensions = [" + list_text(b_batch) + "], ";
  }
  numbers +=
      "lhs_contracting_dimensions = [" + list_text(a_contracted) + "], rhs_contracting_dimensions = [" + list_text(b_contracted) + "]>";
  Attributes attributes{{"dot_dimension_numbers", numbers}};
  add_precision(attributes, a.text().products, a.dtype());
  return a.text().op("dot_general", {a, b}, attributes, {dtype, dims});
}

// ---- Indexing ----

namespace {

// Shared by gather and scatter: the dims of the windows and their positions.
struct Indexing {
  Dims indexed;
  Dims window; // result dims that are x's other dims
  Dims sizes; // of one window
  Dims result;
  Hlo vectors;
  int64_t vector_dim;
};

Hlo stack_coordinates(const Hlos& coordinates) {
  if (coordinates.size() == 1) {
    return coordinates[0];
  }
  Hlos columns;
  for (const Hlo& c : coordinates) {
    Dims dims = c.dims();
    dims.push_back(1);
    columns.push_back(reshape(c, dims));
  }
  return concatenate(columns, columns[0].rank() - 1);
}

Indexing make_indexing(const Hlo& x, const std::vector<size_t>& dims, const Hlos& coordinates, size_t at) {
  Indexing indexing;
  for (size_t d : dims) {
    indexing.indexed.push_back(static_cast<int64_t>(d));
  }
  Dims rest = other_dims(x.rank(), indexing.indexed, {});
  const Dims& points = coordinates[0].dims();
  for (size_t i = 0; i <= rest.size(); ++i) {
    for (size_t p = 0; i == at && p < points.size(); ++p) {
      indexing.result.push_back(points[p]);
    }
    if (i < rest.size()) {
      indexing.window.push_back(static_cast<int64_t>(indexing.result.size()));
      indexing.result.push_back(x.dim(static_cast<size_t>(rest[i])));
    }
  }
  indexing.sizes = x.dims();
  for (size_t d : dims) {
    indexing.sizes[d] = 1;
  }
  indexing.vectors = stack_coordinates(coordinates);
  indexing.vector_dim = static_cast<int64_t>(points.size());
  return indexing;
}

// Names of the parts of an Indexing, for gather and for scatter.
struct IndexingWords {
  const char* op;
  const char* window;
  const char* removed;
  const char* indexed;
};

std::string dimension_numbers(const Indexing& i, const IndexingWords& words) {
  auto list = [](const char* word, const Dims& dims) { return str(word, " = [", list_text(dims), "], "); };
  Dims removed = i.indexed;
  std::sort(removed.begin(), removed.end());
  std::string lists = list(words.window, i.window) + list(words.removed, removed) + list(words.indexed, i.indexed);
  return str("#stablehlo.", words.op, "<", lists, "index_vector_dim = ", i.vector_dim, ">");
}

} // namespace

Hlo gather(Hlo x, const std::vector<size_t>& dims, const Hlos& coordinates, size_t at) {
  Indexing i = make_indexing(x, dims, coordinates, at);
  std::string numbers = dimension_numbers(i, {"gather", "offset_dims", "collapsed_slice_dims", "start_index_map"});
  return x.text().op(
      "gather", {x, i.vectors}, {{"dimension_numbers", numbers}, {"slice_sizes", array_text(i.sizes)}}, {x.dtype(), i.result});
}

Hlo scatter(Hlo x, const std::vector<size_t>& dims, const Hlos& coordinates, Hlo updates, size_t at, const Combine& combine) {
  Indexing i = make_indexing(x, dims, coordinates, at);
  std::string numbers = dimension_numbers(i, {"scatter", "update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"});
  return x.text().op(
      "scatter",
      {x, i.vectors, broadcast(updates, i.result)},
      {{"scatter_dimension_numbers", numbers}},
      std::vector<Type>{x.type()},
      {pair_region({x}, false, combine)})[0];
}

Hlos sort(const Hlos& x, size_t dim, const std::function<Hlo(const Hlos& a, const Hlos& b)>& before) {
  Attributes attributes{{"dimension", int_text(static_cast<int64_t>(dim))}, {"is_stable", "true"}};
  auto comparator = [&](const Hlos& a, const Hlos& b) { return Hlos{before(a, b)}; };
  return x[0].text().op("sort", x, attributes, types_of(x), {pair_region(x, true, comparator)});
}

// ---- Slices at run-time positions, loops ----

Hlo dynamic_slice(Hlo x, const Hlos& starts, const Dims& sizes) {
  return x.text().op("dynamic_slice", joined({x}, starts), {{"slice_sizes", array_text(sizes)}}, {x.dtype(), sizes});
}

Hlo dynamic_update_slice(Hlo x, Hlo update, const Hlos& starts) {
  return x.text().op("dynamic_update_slice", joined({x, update}, starts), {}, x.type());
}

Hlos while_loop(const Hlos& init, const std::function<Hlo(const Hlos&)>& goes_on, const std::function<Hlos(const Hlos&)>& body) {
  std::vector<Type> types = types_of(init);
  return init[0].text().op("while", init, {}, types, {{types, [&](const Hlos& v) { return Hlos{goes_on(v)}; }}, {types, body}});
}

} // namespace torch_xla::stablehlo
