// Matrix products: calls of ATen's kernels.
#include "core/errors.h"
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

std::string shape_text(const Type& t) {
  return product_text(t.dims);
}

// [n, k] x [k, m], operands a and b.
Dims product_dims(const InferContext& c, size_t a, size_t b) {
  Type x = c.operand(a);
  Type y = c.operand(b);
  XLA_CHECK(x.dims[1] == y.dims[0], "mat1 and mat2 shapes cannot be multiplied (", shape_text(x), " and ", shape_text(y), ")");
  return {x.dims[0], y.dims[1]};
}

void check_dtypes(const InferContext& c, size_t a, size_t b) {
  // ATen's message names C++ types, so the CPU raises it.
  if (same_dtype(c, a, b) == DType::Bool) {
    fall_back("a product of bools");
  }
}

// Operand 0 of the add* forms: same dtype, expandable to the result. Attributes 0 and 1 are the factors.
void add_sum(InferContext& c, const Dims& dims) {
  bool fraction = std::holds_alternative<double>(c.attr(0)) || std::holds_alternative<double>(c.attr(1));
  if (is_integral(same_dtype(c, 0, 1), true) && fraction) {
    fall_back("integers times a floating number");
  }
  Dims self = c.operand(0).dims;
  bool fits = self.size() <= dims.size();
  for (size_t i = 1; fits && i <= self.size(); ++i) {
    int64_t have = self[self.size() - i];
    int64_t want = dims[dims.size() - i];
    XLA_CHECK(
        have == 1 || have == want,
        "The expanded size of the tensor (",
        want,
        ") must match the existing size (",
        have,
        ") at non-singleton dimension ",
        dims.size() - i,
        ".  Target sizes: ",
        sizes_text(dims),
        ".  Tensor sizes: ",
        sizes_text(self));
  }
  XLA_CHECK(
      fits,
      "The number of sizes provided (",
      dims.size(),
      ") must be greater or equal to the number of dimensions in the tensor (",
      self.size(),
      ")");
  c.add_result(c.operand(0).dtype, dims);
}

void infer_mm(InferContext& c) {
  require_rank(c, 0, 2, "self must be a matrix");
  require_rank(c, 1, 2, "mat2 must be a matrix");
  check_dtypes(c, 0, 1);
  c.add_result(c.operand(0).dtype, product_dims(c, 0, 1));
}

void infer_addmm(InferContext& c) {
  size_t rank = c.operand(1).dims.size();
  XLA_CHECK(rank == 2, "mat1 must be a matrix, got ", rank, "-D tensor");
  rank = c.operand(2).dims.size();
  XLA_CHECK(rank == 2, "mat2 must be a matrix, got ", rank, "-D tensor");
  check_dtypes(c, 1, 2);
  add_sum(c, product_dims(c, 1, 2));
}

Dims batch_product_dims(const InferContext& c, size_t a, size_t b) {
  require_rank(c, a, 3, "batch1 must be a 3D tensor");
  require_rank(c, b, 3, "batch2 must be a 3D tensor");
  check_dtypes(c, a, b);
  Dims x = c.operand(a).dims;
  Dims y = c.operand(b).dims;
  XLA_CHECK(
      x[0] == y[0] && x[2] == y[1],
      "Expected size for first two dimensions of batch2 tensor to be: [",
      x[0],
      ", ",
      x[2],
      "] but got: [",
      y[0],
      ", ",
      y[1],
      "].");
  return {x[0], x[1], y[2]};
}

// Attribute of expansions: out_dtype.
void infer_bmm(InferContext& c) {
  Dims dims = batch_product_dims(c, 0, 1);
  DType dtype = c.operand(0).dtype;
  c.add_result(c.num_attrs() > 0 ? get_dtype(c, 0, dtype) : dtype, dims);
}

// ATen reads the batches' extents before it checks their ranks.
void require_batches(const InferContext& c) {
  if (c.operand(1).dims.size() != 3 || c.operand(2).dims.size() != 3) {
    fall_back("a product of batches of other ranks");
  }
}

void infer_baddbmm(InferContext& c) {
  require_batches(c);
  add_sum(c, batch_product_dims(c, 1, 2));
}

void infer_addbmm(InferContext& c) {
  require_batches(c);
  Dims dims = batch_product_dims(c, 1, 2);
  add_sum(c, {dims[1], dims[2]});
}

Dims matrix_vector_dims(const InferContext& c, size_t a, size_t b) {
  Dims x = c.operand(a).dims;
  Dims y = c.operand(b).dims;
  if (x.empty()) { // ATen's error is another one
    fall_back("the matrix is a number");
  }
  XLA_CHECK(x.size() == 2 && y.size() == 1, "vector + matrix @ vector expected, got ", 1, ", ", x.size(), ", ", y.size());
  XLA_CHECK(x[1] == y[0], "size mismatch, got input (", x[0], "), mat (", x[0], "x", x[1], "), vec (", y[0], ")");
  check_dtypes(c, a, b);
  return {x[0]};
}

void infer_mv(InferContext& c) {
  Dims dims = matrix_vector_dims(c, 0, 1);
  c.add_result(c.operand(0).dtype, dims);
}

void infer_addmv(InferContext& c) {
  add_sum(c, matrix_vector_dims(c, 1, 2));
}

void infer_dot(InferContext& c) {
  Dims x = c.operand(0).dims;
  Dims y = c.operand(1).dims;
  XLA_CHECK(x.size() == 1 && y.size() == 1, "1D tensors expected, but got ", x.size(), "D and ", y.size(), "D tensors");
  check_dtypes(c, 0, 1);
  XLA_CHECK(
      x[0] == y[0],
      "inconsistent tensor size, expected tensor [",
      x[0],
      "] and src [",
      y[0],
      "] to have the same number of elements, but got ",
      x[0],
      " and ",
      y[0],
      " elements respectively");
  c.add_result(c.operand(0).dtype, {});
}

void infer_addr(InferContext& c) {
  XLA_CHECK(c.operand(1).dims.size() == 1 && c.operand(2).dims.size() == 1, "addr: Expected 1-D arguments vec1 and vec2");
  check_dtypes(c, 1, 2);
  add_sum(c, {c.operand(1).dims[0], c.operand(2).dims[0]});
}

// 8-bit integers, multiplied in 32 bits.
void infer_int_mm(InferContext& c) {
  Type a = c.operand(0);
  Type b = c.operand(1);
  bool integers = (a.dtype == DType::I8 || a.dtype == DType::U8) && b.dtype == DType::I8;
  if (!integers || a.dims.size() != 2 || b.dims.size() != 2 || a.dims[1] != b.dims[0]) {
    fall_back("a product of integers of these operands");
  }
  c.add_result(DType::I32, {a.dims[0], b.dims[1]});
}

void expand_int_mm(ExpandContext& c) {
  auto batch_of = [&](size_t i) {
    Dims dims = c.operand(i).dims;
    return c.raw(i).to(DType::I32).reshape({1, dims[0], dims[1]});
  };
  c.set(0, batch_product(batch_of(0), batch_of(1)));
}

// ---- Products of groups: a matrix operand is cut where its rows or columns reach the offsets, which are data ----

// Operands self [T, K], [G, M, K] or [M, T]; mat2 [G, K, N], [K, T] or [T, N]; offs [G]?; bias?. Attribute: out_dtype.
void infer_grouped(InferContext& c) {
  Type a = c.operand(0);
  Type b = c.operand(1);
  size_t ranks[] = {a.dims.size(), b.dims.size()};
  bool matrices = std::all_of(ranks, ranks + 2, [](size_t rank) { return rank == 2 || rank == 3; });
  bool typed = is_float(a.dtype) && a.dtype != DType::F64 && a.dtype == b.dtype && get_dtype(c, 0, a.dtype) == a.dtype;
  if (!matrices || !typed || c.has(3) || c.has(2) != (ranks[0] == 2 || ranks[1] == 2) || a.dims.back() != b.dims[ranks[1] - 2]) {
    fall_back("a product of groups of these operands");
  }
  int64_t groups = c.has(2) ? c.operand(2).dims[0] : a.dims[0];
  bool offsets = !c.has(2) || (c.operand(2).dtype == DType::I32 && c.operand(2).dims.size() == 1);
  if (!offsets || (ranks[0] == 3 && a.dims[0] != groups) || (ranks[1] == 3 && b.dims[0] != groups)) {
    fall_back("a product of this many groups");
  }
  Dims dims{a.dims[ranks[0] - 2], b.dims.back()};
  c.add_result(a.dtype, ranks[0] == ranks[1] ? Dims{groups, dims[0], dims[1]} : dims);
}

// Which of `extent` rows or columns each group has: [G, extent].
Ex group_members(Ex offsets, int64_t extent) {
  Builder& b = offsets.b();
  Dims dims{offsets.type().dims[0], extent};
  Ex position{&b, b.iota(dims, 1, DType::I32)};
  Ex ended = (position >= offsets.reshape({dims[0], 1})).to(DType::I32);
  return reduce_sum(ended, {0}) == Ex{&b, b.iota(dims, 0, DType::I32)};
}

// The operand once for each group; elements of other groups are 0. `dim` of a matrix is cut.
Ex for_groups(ExpandContext& c, size_t i, size_t dim) {
  Ex x = c.computed(i);
  Dims dims = x.type().dims;
  if (dims.size() == 3) {
    return x;
  }
  int64_t groups = c.operand(2).dims[0];
  Dims members{groups, 1, 1};
  members[dim + 1] = dims[dim];
  Ex all(&c.b(), c.b().broadcast(x.reshape({1, dims[0], dims[1]}).id(), {groups, dims[0], dims[1]}));
  return select(group_members(c.raw(2), dims[dim]).reshape(members), all, 0.0);
}

void expand_grouped(ExpandContext& c) {
  bool inner = c.operand(0).dims.size() == 2 && c.operand(1).dims.size() == 2; // the offsets cut the dim that is summed over
  Ex product = batch_product(for_groups(c, 0, inner ? 1 : 0), for_groups(c, 1, inner ? 0 : 1));
  c.set(0, c.result_type(0).dims.size() == 2 ? reduce_sum(product, {0}) : product);
}

constinit const Op kRows[] = {
    LIBRARY("mm", infer_mm, .traits = kComplex | kSameDtype | kSumsProducts, .out_form = "out"),
    LIBRARY("addmm", infer_addmm, .traits = kComplex | kSameDtype | kSumsProducts, .out_form = "out"),
    LIBRARY("_addmm_activation", infer_addmm, .traits = kSumsProducts, .out_form = "out"),
    LIBRARY("bmm", infer_bmm, .traits = kComplex | kSameDtype | kSumsProducts, .out_form = "out"),
    LIBRARY("baddbmm", infer_baddbmm, .traits = kComplex | kSameDtype | kSumsProducts, .out_form = "out"),
    LIBRARY("addbmm", infer_addbmm, .traits = kComplex | kSameDtype | kHasProducts),
    LIBRARY("mv", infer_mv, .traits = kComplex | kSameDtype, .out_form = "out"),
    LIBRARY("addmv", infer_addmv, .traits = kComplex | kSameDtype, .out_form = "out"),
    LIBRARY("dot", infer_dot, .traits = kComplex | kSameDtype),
    LIBRARY("vdot", infer_dot, .traits = kComplex | kSameDtype),
    LIBRARY("addr", infer_addr, .traits = kComplex),
    LIBRARY("_int_mm", infer_int_mm, .expand = expand_int_mm, .out_form = "out"),
    LIBRARY("_grouped_mm", infer_grouped, .expand = expand_grouped, .traits = kHasProducts),
};

} // namespace

std::span<const Op> matmul_ops() {
  return kRows;
}

bool is_matrix_product(const Op& op) {
  return op.infer == &infer_mm;
}

} // namespace torch_xla
