// Reads at indices. Indices out of range are clamped: a program on such an engine cannot raise.
#include "stablehlo/index.h"

#include "ops/rules.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {

Hlo wide_index(Hlo index) {
  return convert(index, DType::I64);
}

Hlo wrapped_index(Hlo index, int64_t extent) {
  Hlo wide = wide_index(index);
  return select(wide < 0, wide + static_cast<double>(extent), wide);
}

Hlos point_coordinates(Hlo index, size_t dim) {
  Hlos coordinates;
  for (size_t d = 0; d < index.rank(); ++d) {
    coordinates.push_back(d == dim ? wide_index(index) : iota(index.text(), index.dims(), d, DType::I64));
  }
  return coordinates;
}

std::vector<size_t> dims_up_to(size_t rank) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < rank; ++d) {
    dims.push_back(d);
  }
  return dims;
}

Hlo take_along(Hlo x, Hlo index, size_t dim) {
  return gather(x, dims_up_to(x.rank()), point_coordinates(index, dim), 0);
}

namespace {

// Row-major element numbers as coordinates; the number after the last one is out of range.
Hlos split_places(const Hlo& places, const Dims& dims) {
  Hlos coordinates;
  Hlo rest = places;
  Dims steps = contiguous_strides(dims);
  for (size_t d = 0; d + 1 < dims.size(); ++d) {
    auto step = static_cast<double>(steps[d]);
    coordinates.push_back(rest / step);
    rest = rest - coordinates.back() * step;
  }
  coordinates.push_back(rest);
  return coordinates;
}

} // namespace

Indexed read_indexed(const Call& c, const Hlo& self, const Hlos& mask_places) {
  IndexedPart part = read_indices(c);
  Indexed indexed{part.dims, {}, part.at};
  size_t masks = 0;
  for (size_t i = 1; i <= static_cast<size_t>(c.get_int(0)); ++i) {
    if (is_mask(c, i)) {
      Hlos split = split_places(mask_places[masks++], c[i].dims());
      indexed.coordinates.insert(indexed.coordinates.end(), split.begin(), split.end());
    } else if (c.has(i)) {
      indexed.coordinates.push_back(wrapped_index(c[i], self.dim(part.dims[indexed.coordinates.size()])));
    }
  }
  Dims points;
  for (const Hlo& index : indexed.coordinates) {
    points = broadcast_dims(points, index.dims());
  }
  for (Hlo& index : indexed.coordinates) {
    index = broadcast(index, points);
  }
  return indexed;
}

namespace {

// The elements of operand 0 at the places of operand 1 in a dim; the first ones, in order, are a slice.
Hlo take(Call& c, size_t dim, const Hlo& places) {
  const int64_t count = places.type().numel();
  const bool are_first = c.counts_up(1) && count <= c[0].dim(dim);
  return are_first ? slice_dim(c[0], dim, 0, count) : gather(c[0], {dim}, {wide_index(places)}, dim);
}

// Operands weight, indices. Positions of words count up.
void write_embedding(Call& c) {
  c.set(0, take(c, 0, c[1]));
}

void write_index_select(Call& c) {
  size_t dim = c.get_dim(0, c[0].rank());
  c.set(0, take(c, dim, flatten(c[1])));
}

void write_gather(Call& c) {
  if (c[1].rank() == 0 || c[0].rank() == 0 || c[1].type().numel() == 0) {
    c.set(0, c[1].type().numel() == 0 ? c.text().constant(0, c.result_type(0)) : broadcast(reshape(c[0], {}), c[1].dims()));
    return;
  }
  c.set(0, take_along(c[0], c[1], c.get_dim(0, c[0].rank())));
}

void write_take(Call& c) {
  c.set(0, gather(flatten(c[0]), {0}, {wrapped_index(c[1], c[0].type().numel())}, 0));
}

void write_index(Call& c) {
  Indexed indexed = read_indexed(c, c[0]);
  c.set(0, gather(c[0], indexed.dims, indexed.coordinates, indexed.at));
}

constexpr Writer kWriters[] = {
    {"aten::embedding", write_embedding},
    {"aten::index_select", write_index_select},
    {"aten::gather", write_gather},
    {"aten::take", write_take},
    {"aten::index.Tensor", write_index},
};

} // namespace

std::span<const Writer> index_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
