// Gathers, scatters and advanced indexing: calls of ATen's kernels.
#include <algorithm>

#include "core/errors.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

bool is_index(const Type& t) {
  return t.dtype == DType::I64 || t.dtype == DType::I32;
}

// No index fits a tensor without elements, and a node with an empty result never runs: so ATen checks the indices.
void check_runs(const InferContext& c, int64_t elements, size_t index) {
  if (elements == 0 && c.has(index) && c.operand(index).numel() > 0) {
    fall_back("indices into a tensor without elements");
  }
}

// ---- Embedding ----

void infer_embedding(InferContext& c) {
  XLA_CHECK(c.operand(0).dims.size() == 2, "'weight' must be 2-D");
  if (!is_index(c.operand(1))) {
    fall_back("indices of another type than Long or Int");
  }
  Dims dims = c.operand(1).dims;
  dims.push_back(c.operand(0).dims[1]);
  check_runs(c, num_elements(dims), 1);
  c.add_result(c.operand(0).dtype, dims);
}

void infer_embedding_backward(InferContext& c) {
  Dims rows = c.operand(0).dims;
  if (rows.empty() || Dims(rows.data(), rows.size() - 1) != c.operand(1).dims) {
    fall_back("a gradient that does not fit the indices of embedding");
  }
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
  check_runs(c, self.numel(), 1);
  self.dims[wrap_dim(c.get_int(0), self.dims.size())] = index.numel();
  c.add_result(self.dtype, self.dims);
}

// No extent except along dim is larger than the other's.
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
    if (name && str(' ', allowed, ' ').find(str(' ', *name, ' ')) == std::string::npos) {
      return false;
    }
  }
  return true;
}

// Operands self, index of its rank, and src, at least as large.
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
  const bool divides_bools = Allowed == kReductions && self.dtype == DType::Bool && names_reduction(c, "mean");
  if (!fits || !names_reduction(c, Allowed) || divides_bools) {
    fall_back("scatter of these operands");
  }
  check_runs(c, self.numel(), 1);
  like_operand<0>(c);
}

// Operands self, index (a vector), and source with self's extents except along dim.
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
  check_runs(c, c.operand(0).numel(), 1);
  like_operand<0>(c);
}

void infer_along_by_long(InferContext& c) {
  if (c.operand(1).dtype != DType::I64) {
    fall_back("indices of another type than Long, which ATen refuses here");
  }
  infer_along(c);
}

void infer_index_fill(InferContext& c) {
  require_fit(c, 1);
  infer_along_by_long(c);
}

void infer_index_add(InferContext& c) {
  if (is_integral(c.operand(0).dtype, true) && std::holds_alternative<double>(c.attr(1))) {
    fall_back("integers times a floating number");
  }
  infer_along(c);
}

void infer_take(InferContext& c) {
  if (c.operand(1).dtype != DType::I64 || c.operand(0).numel() == 0) {
    fall_back("take of these operands");
  }
  c.add_result(c.operand(0).dtype, c.operand(1).dims);
}

// ---- Advanced indexing ----

// ATen has an IndexError of its own for indices that do not broadcast.
Dims broadcast_indices(const Dims& a, const Dims& b) {
  try {
    return broadcast_dims(a, b);
  } catch (const UserError& error) {
    fall_back(error.what());
  }
}

bool has_mask(const InferContext& c) {
  for (size_t i = 1; i <= static_cast<size_t>(c.get_int(0)); ++i) {
    if (is_mask(c, i)) {
      return true;
    }
  }
  return false;
}

// The indices into self, operand 0.
void check_self_has_elements(const InferContext& c) {
  for (size_t i = 1; i <= static_cast<size_t>(c.get_int(0)); ++i) {
    check_runs(c, c.operand(0).numel(), i);
  }
}

// The extents of the indexed part.
Dims indexed_dims(const Dims& self, const IndexedPart& part) {
  Dims rest;
  for (size_t d = 0; d < self.size(); ++d) {
    if (std::find(part.dims.begin(), part.dims.end(), d) == part.dims.end()) {
      rest.push_back(self[d]);
    }
  }
  Dims dims(rest.data(), part.at);
  for (int64_t d : part.points) {
    dims.push_back(d);
  }
  for (size_t i = part.at; i < rest.size(); ++i) {
    dims.push_back(rest[i]);
  }
  return dims;
}

void infer_index(InferContext& c) {
  if (has_mask(c)) {
    fall_back("indexing by a mask gives a shape that depends on data");
  }
  check_self_has_elements(c);
  c.add_result(c.operand(0).dtype, indexed_dims(c.operand(0).dims, read_indices(c)));
}

// Whether masks have the extents of the dims that they index.
bool masks_fit(const InferContext& c) {
  Dims self = c.operand(0).dims;
  size_t at = 0;
  for (size_t i = 1; i <= static_cast<size_t>(c.get_int(0)); ++i) {
    bool mask = is_mask(c, i);
    Dims dims = mask ? c.operand(i).dims : Dims{0};
    for (size_t d = 0; d < dims.size(); ++d, ++at) {
      if (at >= self.size() || (mask && dims[d] != self[at])) {
        return false;
      }
    }
    if (dims.empty()) { // stands for no dim
      return false;
    }
  }
  return true;
}

// ATen may refuse to write one number by a mask of bytes.
bool writes_number_by_bytes(const InferContext& c) {
  for (size_t i = 1; i + 1 < c.size() && c.operand(c.size() - 1).numel() == 1; ++i) {
    if (is_mask(c, i) && c.operand(i).dtype != DType::Bool) {
      return true;
    }
  }
  return false;
}

void infer_index_put(InferContext& c) {
  Type values = c.operand(c.size() - 1);
  bool fits = masks_fit(c) && values.dtype == c.operand(0).dtype && !writes_number_by_bytes(c);
  if (fits) {
    IndexedPart part = read_indices(c);
    if (has_mask(c)) {
      part.points.back() = known_places(part, values.dims);
    }
    fits = expands_to(values.dims, indexed_dims(c.operand(0).dims, part));
  }
  if (!fits) {
    fall_back("these indices or values do not fit the tensor");
  }
  check_self_has_elements(c);
  like_operand<0>(c);
}

constexpr uint32_t kIndex = kChecksValues | kReadsWhileWriting;

#define UPDATE(NAME, INFER, ELEMENTS, TRAITS, ...) \
  LIBRARY(NAME, INFER __VA_OPT__(, ) __VA_ARGS__, .written = Written::ELEMENTS, .traits = kIndex | TRAITS)

void infer_put(InferContext& c) {
  Type x = c.operand(0);
  Type source = c.operand(2);
  if (x.numel() == 0 || c.operand(1).dtype != DType::I64 || source.dtype != x.dtype || source.numel() != c.operand(1).numel()) {
    fall_back("arguments that ATen refuses");
  }
  like_operand<0>(c);
}

void infer_masked_scatter(InferContext& c) {
  Type x = c.operand(0);
  if (c.operand(1).dtype != DType::Bool || c.operand(2).dtype != x.dtype || broadcast_dims(x.dims, c.operand(1).dims) != x.dims) {
    fall_back("arguments that ATen refuses");
  }
  like_operand<0>(c);
}

constinit const Op kRows[] = {
    LIBRARY("embedding", infer_embedding, .traits = kIndex | kMovesElements),
    LIBRARY("embedding_dense_backward", infer_embedding_backward, .traits = kIndex),
    LIBRARY("index_select", infer_index_select, .traits = kIndex | kComplex | kMovesElements, .out_form = "out"),
    LIBRARY("gather", infer_gather, .traits = kIndex | kComplex | kMovesElements, .out_form = "out"),
    UPDATE("scatter.src", infer_scatter<kNoReduction>, kGathered, kComplex | kMovesElements),
    UPDATE("scatter.value", infer_scatter<kNoReduction>, kGathered, kComplex | kMovesElements),
    UPDATE("scatter.reduce", infer_scatter<kAddMultiply>, kGathered, kComplex),
    UPDATE("scatter.value_reduce", infer_scatter<kAddMultiply>, kGathered, kComplex),
    UPDATE("scatter_add", infer_scatter<kNoReduction>, kGathered, kComplex),
    UPDATE("scatter_reduce.two", infer_scatter<kReductions>, kGathered, kNoTraits),
    UPDATE("index_add", infer_index_add, kSelected, kComplex),
    UPDATE("index_copy", infer_along_by_long, kSelected, kComplex | kMovesElements),
    UPDATE("index_reduce", (of_types<kReals, infer_along>), kSelected, kNoTraits),
    UPDATE("index_fill.int_Scalar", infer_index_fill, kSelected, kComplex, .layout = ResultLayout::kOfOperand),
    UPDATE("index_fill.int_Tensor", infer_along_by_long, kSelected, kFills | kComplex, .layout = ResultLayout::kOfOperand),
    LIBRARY("take", infer_take, .traits = kIndex | kComplex),
    LIBRARY("index.Tensor", infer_index, .layout = ResultLayout::kIndexed, .traits = kIndex | kHostArgument | kComplex | kMovesElements),
    UPDATE("index_put", infer_index_put, kIndexed, kHostArgument | kComplex, .layout = ResultLayout::kOfOperand),
    UPDATE("_index_put_impl_", infer_index_put, kIndexed, kHostArgument | kComplex),
    SHAPED_CALL("put_", infer_put, kAllTypes, .written = Written::kTaken, .traits = kIndex | kComplex),
    SHAPED_CALL("masked_scatter_", infer_masked_scatter, kAllTypes, .traits = kChecksValues | kComplex),
};

} // namespace

bool is_mask(const InferContext& c, size_t i) {
  return c.has(i) && (c.operand(i).dtype == DType::Bool || c.operand(i).dtype == DType::U8);
}

IndexedPart read_indices(const InferContext& c) {
  IndexedPart part;
  size_t rank = c.operand(0).dims.size();
  size_t dim = 0;
  bool adjacent = true;
  for (size_t i = 1; i <= static_cast<size_t>(c.get_int(0)); ++i) {
    if (!c.has(i)) {
      ++dim;
      continue;
    }
    bool mask = is_mask(c, i);
    Type index = c.operand(i);
    if (!mask && !is_index(index)) {
      fall_back("indices of another type than Long, Int, Bool or Byte");
    }
    part.points = broadcast_indices(part.points, mask ? Dims{1} : index.dims);
    for (size_t n = mask ? index.dims.size() : 1; n > 0; --n, ++dim) {
      adjacent = adjacent && (part.dims.empty() || part.dims.back() + 1 == dim);
      part.dims.push_back(dim);
    }
  }
  if (part.dims.empty() || dim > rank) {
    fall_back("indexing by too few or too many indices");
  }
  part.at = adjacent ? part.dims[0] : 0;
  part.after = rank - part.dims.size() - part.at;
  return part;
}

int64_t known_places(const IndexedPart& part, const Dims& values) {
  bool by_values = part.points.back() == 1 && values.size() > part.after;
  return by_values ? values[values.size() - 1 - part.after] : part.points.back();
}

std::span<const Op> index_ops() {
  return kRows;
}

} // namespace torch_xla
