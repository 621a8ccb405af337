// Orders and scans: median, sort, topk, cumsum. Calls of ATen's kernels.
#include "core/errors.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

template <size_t Dim>
void infer_ordered(InferContext& c) {
  require_ordered(c);
  Dims dims = c.operand(0).dims;
  int64_t k = Dim == 1 ? c.get_int(0) : 1; // kthvalue
  if (k < 1 || k > (dims.empty() ? 1 : dims[wrap_dim(c.get_int(Dim, -1), dims.size())])) {
    fall_back("there is no such element");
  }
  infer_values_indices<Dim>(c);
}

void infer_median(InferContext& c) {
  require_ordered(c);
  require_elements(c);
  c.add_result(c.operand(0).dtype, {});
}

template <size_t Dim>
void infer_sorted(InferContext& c) {
  wrap_dim(c.get_int(Dim, -1), c.operand(0).dims.size());
  like_operand<0>(c);
  c.add_result(DType::I64, c.operand(0).dims);
}

void infer_running_extremum(InferContext& c) {
  require_elements(c);
  infer_sorted<0>(c);
}

void infer_topk(InferContext& c) {
  require_ordered(c);
  Type type = c.operand(0);
  int64_t dim = wrap_dim(c.get_int(1, -1), type.dims.size());
  int64_t k = c.get_int(0);
  XLA_CHECK(k >= 0 && k <= (type.dims.empty() ? 1 : type.dims[dim]), "selected index k out of range");
  if (!type.dims.empty()) {
    type.dims[dim] = k;
  }
  c.add_result(type.dtype, type.dims);
  c.add_result(DType::I64, type.dims);
}

// cumsum, cumprod: attributes dim, dtype.
void infer_scan(InferContext& c) {
  Type type = c.operand(0);
  wrap_dim(c.get_int(0), type.dims.size());
  const DType dtype = get_dtype(c, 1, is_integral(type.dtype, true) ? DType::I64 : type.dtype);
  if (dtype == DType::Bool) {
    fall_back("sums of type Bool");
  }
  c.add_result(dtype, type.dims);
}

void infer_log_scan(InferContext& c) {
  wrap_dim(c.get_int(0), c.operand(0).dims.size());
  like_float_operand<0>(c);
}

constinit const Op kRows[] = {
    LIBRARY("median.dim", infer_ordered<0>, .reads = kDenseOperands, .traits = kReadsWhileWriting),
    LIBRARY("nanmedian.dim", infer_ordered<0>, .reads = kDenseOperands, .traits = kReadsWhileWriting),
    LIBRARY("mode", infer_values_indices<0>, .traits = kReadsWhileWriting),
    LIBRARY("kthvalue", infer_ordered<1>, .traits = kReadsWhileWriting),
    LIBRARY("median", infer_median, .traits = kReadsWhileWriting),
    LIBRARY("nanmedian", infer_median, .traits = kReadsWhileWriting),
    LIBRARY(
        "sort", infer_sorted<0>, .layout = ResultLayout::kOfOperands, .traits = kReadsWhileWriting | kMovesElements, .out_form = "values"),
    LIBRARY(
        "sort.stable",
        infer_sorted<1>,
        .layout = ResultLayout::kOfOperands,
        .traits = kReadsWhileWriting | kMovesElements,
        .out_form = "values_stable"),
    LIBRARY("topk", infer_topk, .traits = kReadsWhileWriting | kMovesElements, .out_form = "values"),
    LIBRARY("cummax", infer_running_extremum, .traits = kReadsWhileWriting),
    LIBRARY("cummin", infer_running_extremum, .traits = kReadsWhileWriting),
    LIBRARY("cumsum", infer_scan, .traits = kReadsWhileWriting | kComplex, .out_form = "out"),
    LIBRARY("cumprod", infer_scan, .traits = kReadsWhileWriting | kComplex),
    LIBRARY("_logcumsumexp", infer_log_scan, .traits = kReadsWhileWriting | kComplex),
};

} // namespace

std::span<const Op> order_ops() {
  return kRows;
}

} // namespace torch_xla
