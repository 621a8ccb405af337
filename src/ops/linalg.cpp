// Linear algebra: factorizations, solvers, eigenvalues. Calls of LAPACK by ATen's kernels, with its own shape rules.
#include <algorithm>

#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

constexpr uint32_t kLapack = kFloats | kComplexes;

// LAPACK has no result for some matrices: singular ones, those with NaN.
constexpr uint32_t kRefusesMatrices = kChecksValues | kToldAtCall;

// The factors and the coefficients of the reflectors.
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

// A call of LAPACK: its matrices are stored column by column.
#define LAPACK(NAME, ...)                       \
  {.name = "aten::" NAME,                       \
   .kind = OpKind::kLibrary,                    \
   .kernel_layout = ResultLayout::kColumnMajor, \
   .dtypes = kLapack __VA_OPT__(, ) __VA_ARGS__}

constinit const Op kRows[] = {
    LAPACK("linalg_cholesky_ex", .traits = kRefusesMatrices),
    LAPACK("linalg_inv_ex", .traits = kRefusesMatrices),
    CALL("_linalg_det", kLapack, .reads = kDenseOperands, .traits = kOwnKernel),
    CALL("_linalg_slogdet", kLapack, .reads = kDenseOperands, .traits = kOwnKernel),
    LAPACK("_linalg_solve_ex", .traits = kRefusesMatrices),
    LAPACK("linalg_householder_product"),
    LAPACK("linalg_ldl_factor_ex", .traits = kRefusesMatrices),
    LAPACK("linalg_ldl_solve", .traits = kChecksValues),
    CALL("linalg_lu", kLapack),
    LAPACK("linalg_lu_factor_ex", .traits = kRefusesMatrices),
    LAPACK("linalg_lu_solve", .traits = kChecksValues),
    CALL("linalg_matrix_exp", kLapack, .reads = kDenseOperands),
    LAPACK("linalg_qr"),
    LAPACK("linalg_solve_triangular"),
    CALL("lu_unpack", kLapack, .traits = kChecksValues),
    LAPACK("ormqr"),
    LAPACK("cholesky_inverse", .traits = kRefusesMatrices),
    LAPACK("_cholesky_solve_helper"),
    LAPACK("triangular_solve"),
    LIBRARY("_linalg_svd", nullptr, .layout = ResultLayout::kColumnMajor, .dtypes = kLapack, .traits = kRefusesMatrices),
    LAPACK("_linalg_eigh", .traits = kRefusesMatrices),
    CALL("_linalg_eigvals", kLapack, .traits = kRefusesMatrices),
    LIBRARY("linalg_eig", nullptr, .layout = ResultLayout::kColumnMajor, .dtypes = kLapack, .traits = kRefusesMatrices),
    LAPACK("cholesky", .traits = kRefusesMatrices),
    LIBRARY("geqrf", infer_geqrf, .layout = ResultLayout::kColumnMajor, .dtypes = kLapack),
    CALL("linalg_cross", kReals | kComplexes),
};

} // namespace

std::span<const Op> linalg_ops() {
  return kRows;
}

} // namespace torch_xla
