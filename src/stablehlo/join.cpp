// Joins, rearrangements and searches.
#include "ir/promote.h"
#include "stablehlo/call.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

// Operands the tensors; attributes their count, dim. Those of dims [0] join anything.
void write_cat(Call& c) {
  Hlos parts;
  for (size_t i = 0; i < static_cast<size_t>(c.get_int(0)); ++i) {
    if (c[i].dims() != Dims{0}) {
      parts.push_back(convert(c[i], c.result_type(0).dtype));
    }
  }
  c.set(0, parts.empty() ? convert(c[0], c.result_type(0).dtype) : concatenate(parts, c.get_dim(1, parts[0].rank())));
}

void write_flip(Call& c) {
  Dims dims;
  for (int64_t d : c.get_dims(0)) {
    dims.push_back(wrap_dim(d, c[0].rank()));
  }
  c.set(0, c[0].rank() == 0 ? c[0] : reverse(c[0], dims));
}

Hlo roll(Hlo x, size_t dim, int64_t shift) {
  int64_t n = x.dim(dim);
  int64_t start = n == 0 ? 0 : ((-shift % n) + n) % n;
  return start == 0 ? x : concatenate({slice_dim(x, dim, start, n), slice_dim(x, dim, 0, start)}, dim);
}

// Attributes shifts, dims; without dims the flat tensor is rolled.
void write_roll(Call& c) {
  Dims shifts = c.get_dims(0);
  Dims dims = c.get_dims(1);
  Hlo x = dims.empty() ? roll(flatten(c[0]), 0, shifts[0]) : c[0];
  for (size_t i = 0; i < dims.size(); ++i) {
    x = roll(x, static_cast<size_t>(wrap_dim(dims[i], x.rank())), shifts[i]);
  }
  c.set(0, x);
}

// ---- Pixel shuffles: [..., C r r, H, W] and [..., C, H r, W r]; attribute r ----

template <bool Unshuffle>
void write_pixel_shuffle(Call& c) {
  int64_t r = c.get_int(0);
  Dims wide = Unshuffle ? c[0].dims() : c.result_type(0).dims; // the side with few channels
  size_t rank = wide.size();
  int64_t lead = num_elements(Dims(wide.data(), rank - 3)) * wide[rank - 3];
  int64_t h = wide[rank - 2] / r;
  int64_t w = wide[rank - 1] / r;
  Hlo x = Unshuffle ? transpose(reshape(c[0], {lead, h, r, w, r}), {0, 2, 4, 1, 3})
                    : transpose(reshape(c[0], {lead, r, r, h, w}), {0, 3, 1, 4, 2});
  c.set(0, x);
}

// ---- Searches: the number of boundaries below a value ----

Dims row_of_each_value(const Dims& dims) {
  Dims row(dims.data(), dims.size() - 1);
  row.push_back(1);
  row.push_back(dims.back());
  return row;
}

// Attribute 0 asks for Int; attribute 1, or attribute 2 "right", also counts equal boundaries. Boundaries of more dims than one have a row
// for each row of values.
void search(Call& c, const Hlo& boundaries, const Hlo& values) {
  auto* side = c.num_attrs() > 2 ? std::get_if<std::string>(&c.attr(2)) : nullptr;
  bool right = c.get_bool(1) || (side && *side == "right");
  Dims column = values.dims();
  column.push_back(1);
  Hlo wide = reshape(values, column);
  Hlo rows = boundaries.rank() > 1 ? reshape(boundaries, row_of_each_value(boundaries.dims())) : boundaries;
  Hlo behind = right ? !(rows > wide) : !(rows >= wide);
  c.set(0, reduce_sum(convert(behind, DType::I64), {static_cast<int64_t>(values.rank())}));
}

void write_searchsorted(Call& c) {
  search(c, c[0], c[1]);
}

void write_bucketize(Call& c) {
  search(c, c[1], c[0]);
}

// Attributes assume_unique, invert.
void write_isin(Call& c) {
  Dims column = c[0].dims();
  column.push_back(1);
  DType common = promote_types(c[0].dtype(), c[1].dtype());
  Hlo equal = reshape(convert(c[0], common), column) == flatten(convert(c[1], common));
  Hlo found = reduce(equal, "or", 0, {static_cast<int64_t>(c[0].rank())});
  c.set(0, c.get_bool(1) ? !found : found);
}

constexpr Writer kWriters[] = {
    {"aten::cat", write_cat},
    {"aten::flip", write_flip},
    {"aten::roll", write_roll},
    {"aten::pixel_shuffle", write_pixel_shuffle<false>},
    {"aten::pixel_unshuffle", write_pixel_shuffle<true>},
    {"aten::searchsorted.Tensor", write_searchsorted},
    {"aten::bucketize.Tensor", write_bucketize},
    {"aten::isin.Tensor_Tensor", write_isin},
};

} // namespace

std::span<const Writer> join_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
