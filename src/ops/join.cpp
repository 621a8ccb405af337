// Joins, rearrangements and searches: calls of ATen's kernels, histograms and the triangles; the barrier.
#include <algorithm>

#include "core/errors.h"
#include "ir/promote.h"
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// A tensor of dims [0] may join any tensors, for history's sake.
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
  size_t first = 0; // the first that counts; if all are empty the last: its dims are the result's
  while (first + 1 < count && is_skipped(c.operand(first))) {
    ++first;
  }
  if (count == 0 || c.operand(first).dims.empty()) {
    fall_back("cat of nothing");
  }
  DType dtype = c.operand(first).dtype;
  Dims dims = c.operand(first).dims;
  auto dim = is_skipped(c.operand(first)) ? 0 : static_cast<size_t>(wrap_dim(c.get_int(1), dims.size()));
  for (size_t i = 0; i < count; ++i) {
    dtype = promote_types(dtype, c.operand(i).dtype);
    if (i > first && !is_skipped(c.operand(i))) {
      check_joined(c.operand(first).dims, c.operand(i).dims, dim, i);
      dims[dim] += c.operand(i).dims[dim];
    }
  }
  c.add_result(dtype, dims);
}

void infer_barrier(InferContext& c) {
  for (size_t i = 0; i < c.size(); ++i) {
    c.add_result(c.operand(i).dtype, c.operand(i).dims);
  }
}

void infer_flip(InferContext& c) {
  Dims dims = c.get_dims(0);
  if (!dims.empty()) {
    wrap_dims(dims, c.operand(0).dims.size());
  }
  like_operand<0>(c);
}

void infer_roll(InferContext& c) {
  Dims shifts = c.get_dims(0);
  Dims dims = c.get_dims(1);
  bool flat = dims.empty() && shifts.size() == 1;
  bool nothing = (c.operand(0).dims.empty() && !dims.empty()) || c.operand(0).numel() == 0;
  if (nothing || (!flat && (dims.size() != shifts.size() || dims.empty()))) {
    fall_back("roll by these shifts");
  }
  for (int64_t d : dims) {
    wrap_dim(d, c.operand(0).dims.size());
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

void expand_trace(ExpandContext& c) {
  Dims dims = c.operand(0).dims;
  ValueId diagonal = c.b().view(c.raw(0).id(), contiguous_strides(dims), {std::min(dims[0], dims[1])}, {dims[1] + 1}, 0);
  c.set(0, reduce_sum(Ex(&c.b(), diagonal).to(compute_type(c.result_type(0).dtype)), {0}));
}

// Attribute 0: the extents of the input.
void infer_sizes(InferContext& c) {
  c.add_result(c.operand(0).dtype, c.get_dims(0));
}

// The extents of all dims but the last are equal.
bool have_the_same_rows(const Dims& a, const Dims& b) {
  return a.size() == b.size() && !a.empty() && std::equal(a.begin(), a.end() - 1, b.begin());
}

// The result has the extents of operand I; attribute 0 asks for Int indices, 1 and 2 say on which side of equal boundaries they are.
template <size_t I>
void infer_search(InferContext& c) {
  const Type boundaries = c.operand(1 - I);
  const Type values = c.operand(I);
  bool each_row = I == 1 && have_the_same_rows(boundaries.dims, values.dims); // is sought in boundaries of its own
  bool sided = c.num_attrs() <= 2 || c.is_none(2) || attr_is(c.attr(2), "right") || (attr_is(c.attr(2), "left") && !c.get_bool(1));
  if ((boundaries.dims.size() != 1 && !each_row) || boundaries.dtype != values.dtype || c.has(2) || !sided) {
    fall_back("a search of these operands");
  }
  c.add_result(c.get_bool(0) ? DType::I32 : DType::I64, c.operand(I).dims);
}

// Attributes p, dim, maxnorm. Not by ATen's shape rule: that is Python code, and runs for each new number.
void infer_renorm(InferContext& c) {
  if (c.operand(0).dims.size() < 2 || !(c.get_double(0) > 0) || !(c.get_double(2) >= 0)) {
    fall_back("arguments that ATen refuses");
  }
  wrap_dim(c.get_int(1), c.operand(0).dims.size());
  like_operand<0>(c);
}

void infer_isin(InferContext& c) {
  if (c.operand(0).dtype == DType::Bool || c.operand(1).dtype == DType::Bool) {
    fall_back("isin of Bool, which ATen refuses");
  }
  c.add_result(DType::Bool, c.operand(0).dims);
}

// Attributes interpolation_mode, padding_mode, align_corners.
void infer_grid_sampler(InferContext& c) {
  constexpr int64_t kBicubic = 2;
  require_float(c, 0);
  Dims in = c.operand(0).dims;
  Dims grid = c.operand(1).dims;
  if (in.size() < 4 || c.operand(0).dtype != c.operand(1).dtype || num_elements(in) == 0 || grid.size() != in.size() || grid[0] != in[0] ||
      grid.back() != static_cast<int64_t>(in.size()) - 2 || (in.size() > 4 && c.get_int(0) == kBicubic)) {
    fall_back("grid_sampler of these sizes, or cubic in three dimensions");
  }
  Dims out{in[0], in[1]};
  for (size_t i = 1; i + 1 < grid.size(); ++i) {
    out.push_back(grid[i]);
  }
  c.add_result(c.operand(0).dtype, out);
}

// Attributes bins, min, max; equal bounds mean the operand's range.
void infer_histc(InferContext& c) {
  Type x = c.operand(0);
  double low = attr_double(c.attr(1), 0);
  double high = attr_double(c.attr(2), 0);
  bool rounds_places = is_reduced_float(x.dtype); // ATen computes the place of each element in the same type
  if (rounds_places || x.dtype == DType::Bool || !std::isfinite(low) || !std::isfinite(high) || (is_float(x.dtype) && low == high)) {
    fall_back("a histogram whose range may be refused");
  }
  XLA_CHECK(c.get_int(0) > 0, "torch.histogram(): bins must be > 0, but got ", c.get_int(0), " for dimension 0");
  XLA_CHECK(low <= high, "torch.histc: max must be larger than min");
  c.add_result(x.dtype, {c.get_int(0)});
}

void expand_histc(ExpandContext& c) {
  Builder& b = c.b();
  Ex x = c.computed(0);
  x = (is_float(x.dtype()) ? x : x.to(DType::F64)).reshape({c.operand(0).numel()});
  Ex low = x.constant(attr_double(c.attr(1), 0));
  Ex high = x.constant(attr_double(c.attr(2), 0));
  if (attr_double(c.attr(1), 0) == attr_double(c.attr(2), 0) && c.operand(0).numel() > 0) {
    low = reduce_min(x, {0});
    high = reduce_max(x, {0});
    Ex half = (low == high).to(x.dtype());
    low = low - half;
    high = high + half;
  }
  Ex counts((x >= low) & (x <= high));
  auto bins = static_cast<double>(c.get_int(0));
  Ex place = min(select(counts, (x - low) * bins / (high - low), 0.0), bins - 1).to(DType::I64);
  Type type{DType::I64, {c.get_int(0)}};
  ValueId zeros = b.broadcast(b.constant_int(0, DType::I64), type.dims);
  ValueId operands[] = {zeros, place.id(), counts.to(DType::I64).id()};
  c.set(0, {&b, b.library(get_op("aten::scatter_add"), operands, {int64_t{0}}, {&type, 1})});
}

// Operands: values, bin edges (or attribute 0: the number of bins), weights. Results: counts and edges.
void infer_histogram(InferContext& c) {
  Type x = c.operand(0);
  bool edges_given = c.has(1) && c.operand(1).dims.size() == 1 && c.operand(1).numel() > 1 && c.size() > 2;
  auto* count = c.num_attrs() > 0 ? std::get_if<int64_t>(&c.attr(0)) : nullptr;
  size_t weight = edges_given ? 2 : 1;
  if (!is_float(x.dtype) || is_reduced_float(x.dtype) || (!edges_given && (!count || *count < 1 || c.size() > 2)) ||
      (c.has(weight) && (c.operand(weight).dims != x.dims || c.operand(weight).dtype != x.dtype)) ||
      (edges_given && c.operand(1).dtype != x.dtype)) {
    fall_back("a histogram of these operands");
  }
  int64_t bins = edges_given ? c.operand(1).numel() - 1 : *count;
  c.add_result(x.dtype, {bins});
  c.add_result(x.dtype, {bins + 1});
}

constinit const Op kRows[] = {
    LIBRARY(
        "cat",
        infer_cat,
        .layout = ResultLayout::kChannelsLastOfAll,
        .traits = kReadsWhileWriting | kComplex | kMovesElements,
        .out_form = "out"),
    LIBRARY("flip", infer_flip, .layout = ResultLayout::kOfOperands, .traits = kReadsWhileWriting | kComplex | kMovesElements),
    LIBRARY("roll", infer_roll, .layout = ResultLayout::kChannelsLastOfAll, .traits = kReadsWhileWriting | kComplex | kMovesElements),
    LIBRARY("trace", (of_types<(kReals | kComplexes), infer_trace>), .expand = expand_trace, .traits = kReadsWhileWriting | kComplex),
    LIBRARY("unfold_backward", infer_sizes, .traits = kReadsWhileWriting | kComplex),
    LIBRARY("searchsorted.Tensor", (of_types<kReals, infer_search<1>>), .traits = kReadsWhileWriting),
    LIBRARY("bucketize.Tensor", (of_types<kReals, infer_search<0>>), .traits = kReadsWhileWriting),
    LIBRARY("isin.Tensor_Tensor", (of_types<kReals, infer_isin>), .reads = kDenseOperands, .traits = kReadsWhileWriting),
    LIBRARY("histc", infer_histc, .expand = expand_histc, .traits = kReadsWhileWriting),
    COMPOSITE("tril", infer_triangle<false>, expand_triangle<false>, .traits = kReadsWhileWriting | kComplex),
    COMPOSITE("triu", infer_triangle<true>, expand_triangle<true>, .traits = kReadsWhileWriting | kComplex),
    LIBRARY("grid_sampler_2d", infer_grid_sampler, .traits = kReadsWhileWriting),
    LIBRARY("grid_sampler_3d", infer_grid_sampler, .traits = kReadsWhileWriting),
    CALL("grid_sampler_2d_backward", kAllFloats),
    CALL("grid_sampler_3d_backward", kAllFloats),
    CALL("searchsorted.Scalar", kReals),
    CALL("bucketize.Scalar", kReals),
    CALL("isin.Scalar_Tensor", kReals),
    CALL("isin.Tensor_Scalar", kReals),
    CALL("nonzero_static", kAllTypes),
    SHAPED_CALL("histogram.bin_ct", infer_histogram, kFloats, .traits = kChecksValues),
    SHAPED_CALL("histogram.bins_tensor", infer_histogram, kFloats, .traits = kChecksValues),
    CALL("_cdist_forward", kFloats),
    CALL("_cdist_backward", kFloats),
    CALL("_pdist_forward", kFloats, .reads = kDenseOperands),
    CALL("_pdist_backward", kFloats, .reads = kDenseOperands),
    SHAPED_CALL("renorm", infer_renorm, kAllFloats | kComplexes, .traits = kComplex),
    CALL("narrow_copy", kAllTypes),
    {.name = "xla::optimization_barrier",
     .kind = OpKind::kLibrary,
     .infer = infer_barrier,
     .written = Written::kNone,
     .traits = kOwnKernel},
};

} // namespace

std::span<const Op> join_ops() {
  return kRows;
}

} // namespace torch_xla
