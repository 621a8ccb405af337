// Reads at indices. Indices out of range are clamped: a program on such an engine cannot raise.
#include "engine/pjrt/stablehlo/indices.h"

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

Indexed read_indexed(const Call& c, const Hlo& self) {
  Indexed indexed;
  auto count = static_cast<size_t>(c.get_int(0));
  Dims points;
  bool adjacent = true;
  for (size_t d = 0; d < count; ++d) {
    if (c.has(1 + d)) {
      adjacent = adjacent && (indexed.dims.empty() || indexed.dims.back() + 1 == d);
      indexed.dims.push_back(d);
      indexed.coordinates.push_back(wrapped_index(c[1 + d], self.dim(d)));
      points = broadcast_dims(points, c[1 + d].dims());
    }
  }
  for (Hlo& index : indexed.coordinates) {
    index = broadcast(index, points);
  }
  indexed.at = adjacent ? indexed.dims[0] : 0;
  return indexed;
}

namespace {

// Operands weight, indices.
void write_embedding(Call& c) {
  c.set(0, gather(c[0], {0}, {wide_index(c[1])}, 0));
}

void write_index_select(Call& c) {
  auto dim = static_cast<size_t>(c.wrap(c.get_int(0), c[0].rank()));
  c.set(0, gather(c[0], {dim}, {flatten(wide_index(c[1]))}, dim));
}

void write_gather(Call& c) {
  if (c[1].rank() == 0 || c[0].rank() == 0 || c[1].type().numel() == 0) {
    c.set(0, c[1].type().numel() == 0 ? c.text().constant(0, c.result_type(0)) : broadcast(reshape(c[0], {}), c[1].dims()));
    return;
  }
  c.set(0, take_along(c[0], c[1], static_cast<size_t>(c.wrap(c.get_int(0), c[0].rank()))));
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
