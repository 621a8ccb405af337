// Linear algebra: factorizations, solvers, eigenvalues. Calls of LAPACK by ATen's kernels, with its own shape rules.
#include <algorithm>

#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

constexpr uint32_t kLapack = kFloats | kComplexes;

// The factors and the numbers of the reflectors.
void infer_geqrf(InferContext& c) {
  Type a = c.operand(0);
  if (a.dims.size() < 2 || a.numel() == 0) {
    fall_back("a factorization of nothing");
  }
  c.add_result(a.dtype, a.dims);
  Dims batch(a.dims.data(), a.dims.size() - 2);
  batch.push_back(std::min(a.dims[a.dims.size() - 2], a.dims[a.dims.size() - 1]));
  c.add_result(a.dtype, batch);
}

constinit const Op kRows[] = {
    CALL("linalg_cholesky_ex", kLapack),
    CALL("linalg_inv_ex", kLapack),
    CALL("_linalg_det", kLapack, .traits = kOwnKernel | kDenseOperands),
    CALL("_linalg_slogdet", kLapack, .traits = kOwnKernel | kDenseOperands),
    CALL("_linalg_solve_ex", kLapack),
    CALL("linalg_householder_product", kLapack),
    CALL("linalg_ldl_factor_ex", kLapack),
    CALL("linalg_ldl_solve", kLapack),
    CALL("linalg_lu", kLapack),
    CALL("linalg_lu_factor_ex", kLapack),
    CALL("linalg_lu_solve", kLapack),
    CALL("linalg_matrix_exp", kLapack, .traits = kDenseOperands),
    CALL("linalg_qr", kLapack),
    CALL("linalg_solve_triangular", kLapack),
    CALL("lu_unpack", kLapack),
    CALL("ormqr", kLapack),
    CALL("cholesky_inverse", kLapack),
    CALL("_cholesky_solve_helper", kLapack),
    CALL("triangular_solve", kLapack),
    LIBRARY("_linalg_svd", nullptr, .layout = ResultLayout::kColumnMajor, .dtypes = kLapack, .traits = kChecksValues),
    CALL("_linalg_eigh", kLapack, .traits = kChecksValues),
    CALL("_linalg_eigvals", kLapack, .traits = kChecksValues),
    LIBRARY("linalg_eig", nullptr, .layout = ResultLayout::kColumnMajor, .dtypes = kLapack, .traits = kChecksValues),
    CALL("cholesky", kLapack, .traits = kChecksValues),
    LIBRARY("geqrf", infer_geqrf, .layout = ResultLayout::kColumnMajor, .dtypes = kLapack),
    CALL("linalg_cross", kReals | kComplexes),
};

} // namespace

std::span<const Op> linalg_ops() {
  return kRows;
}

} // namespace torch_xla
