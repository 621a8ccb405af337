// Gathers, scatters and advanced indexing: calls of ATen's kernels.
#include "core/errors.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

bool is_index(const Type& t) {
  return t.dtype == DType::I64 || t.dtype == DType::I32;
}

// ---- Embedding ----

void infer_embedding(InferContext& c) {
  XLA_CHECK(c.operand(0).dims.size() == 2, "'weight' must be 2-D");
  if (!is_index(c.operand(1))) {
    fall_back("indices of another type than Long or Int");
  }
  Dims dims = c.operand(1).dims;
  dims.push_back(c.operand(0).dims[1]);
  c.add_result(c.operand(0).dtype, dims);
}

void infer_embedding_backward(InferContext& c) {
  c.add_result(c.operand(0).dtype, {c.get_int(0), c.operand(0).dims.back()});
}

// ---- One dim: operands self, index, ...; attribute dim ----

void infer_index_select(InferContext& c) {
  Type self = c.operand(0);
  Type index = c.operand(1);
  XLA_CHECK_KIND(Index, index.dims.size() <= 1, "index_select(): Index is supposed to be a vector");
  if (!is_index(index) || self.dims.empty()) {
    fall_back("index_select of these operands");
  }
  self.dims[wrap_dim(c.get_int(0), self.dims.size())] = index.numel();
  c.add_result(self.dtype, self.dims);
}

// No extent but that of dim is larger than the other's.
bool fits_beside(const Dims& dims, const Dims& other, size_t dim) {
  for (size_t d = 0; d < std::min(dims.size(), other.size()); ++d) {
    if (d != dim && dims[d] > other[d]) {
      return false;
    }
  }
  return true;
}

void infer_gather(InferContext& c) {
  Type self = c.operand(0);
  Type index = c.operand(1);
  wrap_dim(c.get_int(0), self.dims.size());
  if (!is_index(index)) {
    fall_back("gather by another type than Long or Int");
  }
  bool same_rank = std::max<size_t>(self.dims.size(), 1) == std::max<size_t>(index.dims.size(), 1) || index.numel() == 0;
  XLA_CHECK(same_rank, "Index tensor must have the same number of dimensions as input tensor");
  if (index.numel() > 0 && !fits_beside(index.dims, self.dims, wrap_dim(c.get_int(0), self.dims.size()))) {
    fall_back("gather by an index that is larger than the input");
  }
  c.add_result(self.dtype, index.dims);
}

// The reductions that the string among the attributes may name; the other rows have none.
constexpr char kNoReduction[] = "";
constexpr char kAddMultiply[] = "add multiply";
constexpr char kReductions[] = "sum prod mean amax amin";

bool names_reduction(const InferContext& c, std::string_view allowed) {
  for (size_t i = 0; i < c.num_attrs(); ++i) {
    auto* name = std::get_if<std::string>(&c.attr(i));
    if (name && allowed.find(*name) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

// Operands self, index of its rank, and src, which is as large at least.
template <const char* Allowed>
void infer_scatter(InferContext& c) {
  Type self = c.operand(0);
  Type index = c.operand(1);
  auto dim = static_cast<size_t>(wrap_dim(c.get_int(0), self.dims.size()));
  bool fits = index.dtype == DType::I64 && index.dims.size() == self.dims.size() && fits_beside(index.dims, self.dims, dim);
  if (c.size() > 2) {
    Type source = c.operand(2);
    fits = fits && source.dtype == self.dtype && source.dims.size() == index.dims.size() &&
        fits_beside(index.dims, source.dims, source.dims.size());
  }
  if (!fits || !names_reduction(c, Allowed)) {
    fall_back("scatter of these operands");
  }
  like_operand<0>(c);
}

// Operands self, index (a vector), and source, which has self's extents but for dim.
void infer_along(InferContext& c) {
  Type self = c.operand(0);
  Type index = c.operand(1);
  int64_t dim = wrap_dim(c.get_int(0), self.dims.size());
  bool fits = is_index(index) && index.dims.size() == 1 && !self.dims.empty();
  if (fits && c.size() > 2 && !c.operand(2).dims.empty()) {
    self.dims[dim] = index.dims[0];
    fits = self.dims == c.operand(2).dims;
  }
  if (!fits || (c.size() > 2 && c.operand(2).dtype != self.dtype) || !names_reduction(c, kReductions)) {
    fall_back("an update along a dim by these operands");
  }
  like_operand<0>(c);
}

void infer_take(InferContext& c) {
  if (c.operand(1).dtype != DType::I64 || c.operand(0).numel() == 0) {
    fall_back("take of these operands");
  }
  c.add_result(c.operand(0).dtype, c.operand(1).dims);
}

// ---- Advanced indexing: operands self, indices (None for a whole dim), ...; attribute 0: their count ----

struct Indices {
  Dims dims; // broadcast
  size_t first = 0; // the dim of the first index
  bool adjacent = true;
};

// ATen has an IndexError of its own for indices that do not broadcast.
Dims broadcast_indices(const Dims& a, const Dims& b) {
  try {
    return broadcast_dims(a, b);
  } catch (const UserError& error) {
    fall_back(error.what());
  }
}

Indices read_indices(const InferContext& c) {
  Indices result;
  auto count = static_cast<size_t>(c.get_int(0));
  size_t seen = 0;
  size_t last = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!c.has(1 + i)) {
      continue;
    }
    Type index = c.operand(1 + i);
    if (!is_index(index)) {
      fall_back("indexing by a mask gives a shape that depends on data");
    }
    result.first = seen ? result.first : i;
    result.adjacent = result.adjacent && (!seen || last + 1 == i);
    result.dims = broadcast_indices(result.dims, index.dims);
    last = i;
    ++seen;
  }
  if (seen == 0 || count > c.operand(0).dims.size()) {
    fall_back("indexing by too few or too many indices");
  }
  return result;
}

// The extents of the indexed part.
Dims indexed_dims(const InferContext& c) {
  Indices indices = read_indices(c);
  Dims self = c.operand(0).dims;
  auto count = static_cast<size_t>(c.get_int(0));
  size_t at = indices.adjacent ? indices.first : 0;
  Dims rest;
  for (size_t i = 0; i < self.size(); ++i) {
    if (i >= count || !c.has(1 + i)) {
      rest.push_back(self[i]);
    }
  }
  Dims dims(rest.data(), at);
  for (int64_t d : indices.dims) {
    dims.push_back(d);
  }
  for (size_t i = at; i < rest.size(); ++i) {
    dims.push_back(rest[i]);
  }
  return dims;
}

void infer_index(InferContext& c) {
  c.add_result(c.operand(0).dtype, indexed_dims(c));
}

// The masks among the indices have the extents of the dims that they stand for.
bool masks_fit(const InferContext& c) {
  Dims self = c.operand(0).dims;
  size_t at = 0;
  for (size_t i = 0; i < static_cast<size_t>(c.get_int(0)); ++i) {
    bool is_mask = c.has(1 + i) && !is_index(c.operand(1 + i));
    Dims mask = is_mask ? c.operand(1 + i).dims : Dims{0};
    for (size_t d = 0; d < mask.size(); ++d, ++at) {
      if (at >= self.size() || (is_mask && mask[d] != self[at])) {
        return false;
      }
    }
  }
  return true;
}

bool has_mask(const InferContext& c) {
  for (size_t i = 0; i < static_cast<size_t>(c.get_int(0)); ++i) {
    if (c.has(1 + i) && !is_index(c.operand(1 + i))) {
      return true;
    }
  }
  return false;
}

// A mask here does not change the shape of the result.
void infer_index_put(InferContext& c) {
  Type values = c.operand(c.size() - 1);
  bool fits = masks_fit(c) && values.dtype == c.operand(0).dtype;
  if (fits && !has_mask(c)) {
    Dims part = indexed_dims(c);
    fits = values.dims.size() <= part.size() && broadcast_dims(values.dims, part) == part;
  }
  if (!fits) {
    fall_back("these indices or values do not fit the tensor");
  }
  like_operand<0>(c);
}

#define ROW(NAME, INFER) {.name = "aten::" NAME, .kind = OpKind::kLibrary, .infer = INFER}

constinit const Op kRows[] = {
    ROW("embedding", infer_embedding),
    ROW("embedding_dense_backward", infer_embedding_backward),
    ROW("index_select", infer_index_select),
    ROW("gather", infer_gather),
    ROW("scatter.src", infer_scatter<kNoReduction>),
    ROW("scatter.value", infer_scatter<kNoReduction>),
    ROW("scatter.reduce", infer_scatter<kAddMultiply>),
    ROW("scatter.value_reduce", infer_scatter<kAddMultiply>),
    ROW("scatter_add", infer_scatter<kNoReduction>),
    ROW("scatter_reduce.two", infer_scatter<kReductions>),
    ROW("index_add", infer_along),
    ROW("index_copy", infer_along),
    ROW("index_reduce", infer_along),
    ROW("index_fill.int_Scalar", infer_along),
    ROW("index_fill.int_Tensor", infer_along),
    ROW("take", infer_take),
    ROW("index.Tensor", infer_index),
    ROW("index_put", infer_index_put),
    ROW("_index_put_impl_", infer_index_put),
};

} // namespace

std::span<const Op> index_ops() {
  return kRows;
}

} // namespace torch_xla
