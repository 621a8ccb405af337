// Gathers, scatters, joins and rearrangements: calls of ATen's kernels, and the triangles.
#include "core/errors.h"
#include "ops/math.h"
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

void infer_gather(InferContext& c) {
  Type self = c.operand(0);
  Type index = c.operand(1);
  wrap_dim(c.get_int(0), self.dims.size());
  if (!is_index(index)) {
    fall_back("gather by another type than Long or Int");
  }
  bool same_rank = std::max<size_t>(self.dims.size(), 1) == std::max<size_t>(index.dims.size(), 1) || index.numel() == 0;
  XLA_CHECK(same_rank, "Index tensor must have the same number of dimensions as input tensor");
  c.add_result(self.dtype, index.dims);
}

void infer_scatter(InferContext& c) {
  wrap_dim(c.get_int(0), c.operand(0).dims.size());
  like_operand<0>(c);
}

void infer_take(InferContext& c) {
  c.add_result(c.operand(0).dtype, c.operand(1).dims);
}

// ---- Advanced indexing: operands self, indices (None for a whole dim), ...; attribute 0: their count ----

struct Indices {
  Dims dims; // broadcast
  size_t first = 0; // the dim of the first index
  bool adjacent = true;
};

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
    result.dims = broadcast_dims(result.dims, index.dims);
    last = i;
    ++seen;
  }
  if (seen == 0 || count > c.operand(0).dims.size()) {
    fall_back("indexing by too few or too many indices");
  }
  return result;
}

void infer_index(InferContext& c) {
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
  c.add_result(c.operand(0).dtype, dims);
}

// A mask here does not change the shape of the result.
void infer_index_put(InferContext& c) {
  like_operand<0>(c);
}

// ---- Joins and rearrangements ----

// A tensor of dims [0] joins anything, for history's sake.
bool is_skipped(const Type& t) {
  return t.dims == Dims{0};
}

void check_joined(const Dims& first, const Dims& dims, size_t dim, size_t number) {
  XLA_CHECK(dims.size() == first.size(), "Tensors must have same number of dimensions: got ", first.size(), " and ", dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    XLA_CHECK(
        d == dim || dims[d] == first[d],
        "Sizes of tensors must match except in dimension ",
        dim,
        ". Expected size ",
        first[d],
        " but got size ",
        dims[d],
        " for tensor number ",
        number,
        " in the list.");
  }
}

void infer_cat(InferContext& c) {
  auto count = static_cast<size_t>(c.get_int(0));
  size_t first = 0;
  while (first < count && is_skipped(c.operand(first))) {
    ++first;
  }
  if (first == count || c.operand(first).dims.empty()) {
    fall_back("cat of nothing");
  }
  Dims dims = c.operand(first).dims;
  auto dim = static_cast<size_t>(wrap_dim(c.get_int(1), dims.size()));
  for (size_t i = 0; i < count; ++i) {
    same_dtype(c, first, i);
    if (i > first && !is_skipped(c.operand(i))) {
      check_joined(c.operand(first).dims, c.operand(i).dims, dim, i);
      dims[dim] += c.operand(i).dims[dim];
    }
  }
  c.add_result(c.operand(first).dtype, dims);
}

void infer_flip(InferContext& c) {
  Dims dims = c.get_dims(0);
  if (!dims.empty()) {
    wrap_dims(dims, c.operand(0).dims.size());
  }
  like_operand<0>(c);
}

template <bool Upper>
void infer_triangle(InferContext& c) {
  XLA_CHECK(c.operand(0).dims.size() >= 2, Upper ? "triu" : "tril", ": input tensor must have at least 2 dimensions");
  like_operand<0>(c);
}

// Keeps column - row <= diagonal, or >= for the upper one.
template <bool Upper>
void expand_triangle(ExpandContext& c) {
  Ex x = c.raw(0);
  Dims dims = x.type().dims;
  auto rank = static_cast<int64_t>(dims.size());
  Dims last{dims[rank - 2], dims[rank - 1]};
  Ex column(&c.b(), c.b().iota(last, 1, DType::I64));
  Ex row(&c.b(), c.b().iota(last, 0, DType::I64));
  Ex distance = column - row;
  Ex diagonal(&c.b(), c.b().constant_int(c.get_int(0), DType::I64));
  c.set(0, select(Upper ? distance >= diagonal : distance <= diagonal, x, 0.0));
}

void infer_trace(InferContext& c) {
  DType dtype = c.operand(0).dtype;
  XLA_CHECK(c.operand(0).dims.size() == 2, "trace: expected a matrix");
  c.add_result(is_integral(dtype, true) ? DType::I64 : dtype, {});
}

// Attribute 0: the extents of the input.
void infer_sizes(InferContext& c) {
  c.add_result(c.operand(0).dtype, c.get_dims(0));
}

// The result has the extents of operand I; attribute 0 asks for Int indices.
template <size_t I>
void infer_search(InferContext& c) {
  c.add_result(c.get_bool(0) ? DType::I32 : DType::I64, c.operand(I).dims);
}

void infer_isin(InferContext& c) {
  c.add_result(DType::Bool, c.operand(0).dims);
}

#define ROW(NAME, INFER) {.name = "aten::" NAME, .kind = OpKind::kLibrary, .infer = INFER}
#define COMPOSITE(NAME, INFER, EXPAND) {.name = "aten::" NAME, .kind = OpKind::kComposite, .infer = INFER, .expand = EXPAND}

constinit const Op kRows[] = {
    ROW("embedding", infer_embedding),
    ROW("embedding_dense_backward", infer_embedding_backward),
    ROW("index_select", infer_index_select),
    ROW("gather", infer_gather),
    ROW("scatter.src", infer_scatter),
    ROW("scatter.value", infer_scatter),
    ROW("scatter.reduce", infer_scatter),
    ROW("scatter.value_reduce", infer_scatter),
    ROW("scatter_add", infer_scatter),
    ROW("scatter_reduce.two", infer_scatter),
    ROW("index_add", infer_scatter),
    ROW("index_copy", infer_scatter),
    ROW("index_reduce", infer_scatter),
    ROW("index_fill.int_Scalar", infer_scatter),
    ROW("index_fill.int_Tensor", infer_scatter),
    ROW("take", infer_take),
    ROW("index.Tensor", infer_index),
    ROW("index_put", infer_index_put),
    ROW("_index_put_impl_", infer_index_put),
    {.name = "aten::cat", .kind = OpKind::kLibrary, .traits = kFormatOfAll, .infer = infer_cat},
    ROW("flip", infer_flip),
    ROW("roll", like_operand<0>),
    ROW("trace", infer_trace),
    ROW("unfold_backward", infer_sizes),
    ROW("searchsorted.Tensor", infer_search<1>),
    ROW("bucketize.Tensor", infer_search<0>),
    ROW("isin.Tensor_Tensor", infer_isin),
    COMPOSITE("tril", infer_triangle<false>, expand_triangle<false>),
    COMPOSITE("triu", infer_triangle<true>, expand_triangle<true>),
};

} // namespace

std::span<const Op> index_ops() {
  return kRows;
}

} // namespace torch_xla
