// Matrix products: one library call each.
#include "core/errors.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

#define LIBRARY(NAME, INFER) {.name = "aten::" NAME, .kind = OpKind::kLibrary, .traits = kHeavy, .infer = INFER}

std::string shapes_text(const Dims& a, const Dims& b) {
  return product_text(a) + " and " + product_text(b);
}

void check_rank(const InferContext& c, size_t i, size_t rank, const char* name) {
  XLA_CHECK(c.operand(i).dims.size() == rank, name, " must be ", rank == 1 ? "a vector" : rank == 2 ? "a matrix" : "a 3D tensor", ", got ",
            c.operand(i).dims.size(), "D");
}

void check_product(const Dims& a, const Dims& b) {
  XLA_CHECK(a[a.size() - 1] == b[b.size() - 2], "mat1 and mat2 shapes cannot be multiplied (", shapes_text(a, b), ")");
}

// (n, k) x (k, m), operands a and a + 1.
Dims matrix_product(const InferContext& c, size_t a) {
  check_rank(c, a, 2, a == 0 ? "self" : "mat1");
  check_rank(c, a + 1, 2, "mat2");
  check_product(c.operand(a).dims, c.operand(a + 1).dims);
  return {c.operand(a).dims[0], c.operand(a + 1).dims[1]};
}

Dims batch_product(const InferContext& c, size_t a) {
  check_rank(c, a, 3, "batch1");
  check_rank(c, a + 1, 3, "batch2");
  const Dims& x = c.operand(a).dims;
  const Dims& y = c.operand(a + 1).dims;
  XLA_CHECK(x[0] == y[0] && x[2] == y[1], "Expected size for first two dimensions of batch2 tensor to be: [", x[0], ", ", x[2], "] but got: [",
            y[0], ", ", y[1], "].");
  return {x[0], x[1], y[2]};
}

void check_expandable(const InferContext& c, const Dims& to) {
  const Dims& from = c.operand(0).dims;
  bool ok = from.size() <= to.size();
  for (size_t i = 0; ok && i < from.size(); ++i) {
    int64_t extent = to[to.size() - from.size() + i];
    ok = from[i] == extent || from[i] == 1;
  }
  XLA_CHECK(ok, "The expanded size of the tensor ", dims_text(to), " must match the existing size ", dims_text(from));
}

void check_same_dtype(const InferContext& c, size_t a) {
  XLA_CHECK(c.operand(a).dtype == c.operand(a + 1).dtype, "expected m1 and m2 to have the same dtype, but got: ", dtype_name(c.operand(a).dtype),
            " != ", dtype_name(c.operand(a + 1).dtype));
}

void infer_mm(InferContext& c) {
  Dims dims = matrix_product(c, 0);
  check_same_dtype(c, 0);
  c.add_result(c.operand(0).dtype, dims);
}

void infer_addmm(InferContext& c) {
  Dims dims = matrix_product(c, 1);
  check_same_dtype(c, 1);
  check_same_dtype(c, 0);
  check_expandable(c, dims);
  c.add_result(c.operand(1).dtype, dims);
}

void infer_bmm(InferContext& c) {
  Dims dims = batch_product(c, 0);
  check_same_dtype(c, 0);
  c.add_result(c.operand(0).dtype, dims);
}

void infer_baddbmm(InferContext& c) {
  Dims dims = batch_product(c, 1);
  check_same_dtype(c, 1);
  check_same_dtype(c, 0);
  check_expandable(c, dims);
  c.add_result(c.operand(1).dtype, dims);
}

void infer_addbmm(InferContext& c) {
  Dims dims = batch_product(c, 1);
  check_same_dtype(c, 1);
  check_expandable(c, {dims[1], dims[2]});
  c.add_result(c.operand(1).dtype, {dims[1], dims[2]});
}

Dims matrix_vector(const InferContext& c, size_t a) {
  check_rank(c, a, 2, "mat");
  check_rank(c, a + 1, 1, "vec");
  const Dims& m = c.operand(a).dims;
  const Dims& v = c.operand(a + 1).dims;
  XLA_CHECK(m[1] == v[0], "size mismatch, got input (", m[0], "), mat (", product_text(m), "), vec (", v[0], ")");
  check_same_dtype(c, a);
  return {m[0]};
}

void infer_mv(InferContext& c) {
  c.add_result(c.operand(0).dtype, matrix_vector(c, 0));
}

void infer_addmv(InferContext& c) {
  Dims dims = matrix_vector(c, 1);
  check_expandable(c, dims);
  c.add_result(c.operand(1).dtype, dims);
}

void infer_dot(InferContext& c) {
  const Dims& a = c.operand(0).dims;
  const Dims& b = c.operand(1).dims;
  XLA_CHECK(a.size() == 1 && b.size() == 1, "1D tensors expected, but got ", a.size(), "D and ", b.size(), "D tensors");
  XLA_CHECK(a == b, "inconsistent tensor size, expected tensor ", dims_text(a), " and src ", dims_text(b),
            " to have the same number of elements, but got ", a[0], " and ", b[0], " elements respectively");
  XLA_CHECK(c.operand(0).dtype == c.operand(1).dtype, "dot : expected both vectors to have same dtype, but found ", dtype_name(c.operand(0).dtype),
            " and ", dtype_name(c.operand(1).dtype));
  c.add_result(c.operand(0).dtype, {});
}

constexpr Op kRows[] = {
    LIBRARY("mm", infer_mm),       LIBRARY("addmm", infer_addmm), LIBRARY("bmm", infer_bmm), LIBRARY("baddbmm", infer_baddbmm),
    LIBRARY("addbmm", infer_addbmm), LIBRARY("mv", infer_mv),     LIBRARY("addmv", infer_addmv), LIBRARY("dot", infer_dot),
};

} // namespace

std::span<const Op> matmul_ops() {
  return kRows;
}

} // namespace torch_xla
