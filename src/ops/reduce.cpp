// Sums, means, extrema, logical reductions, variances, norms.
#include "core/errors.h"
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// How a row passes its dims and flags: positions among the attributes, -1: none.
struct Layout {
  int dims = -1;
  int keepdim = -1;
  int dtype = -1;
};
constexpr Layout kFull = {};
constexpr Layout kFullTyped = {.dtype = 0};
constexpr Layout kDims = {.dims = 0, .keepdim = 1};
constexpr Layout kDimsTyped = {.dims = 0, .keepdim = 1, .dtype = 2};
constexpr Layout kVar = {.dims = 0, .keepdim = 2}; // correction between
constexpr Layout kNorm = {.dims = 1, .keepdim = 2, .dtype = 3}; // order first
constexpr Layout kNormDims = {.dims = 1, .keepdim = 2};
constexpr Layout kNormTyped = {.dtype = 1};

Dims reduced(const InferContext& c, Layout layout) {
  return wrap_dims(layout.dims < 0 ? Dims() : c.get_dims(layout.dims), c.operand(0).dims.size());
}

void add_reduced(InferContext& c, Layout layout, DType dtype) {
  c.add_result(dtype, reduced_dims(c.operand(0).dims, reduced(c, layout), layout.keepdim >= 0 && c.get_bool(layout.keepdim)));
}

DType asked_dtype(const InferContext& c, Layout layout, DType otherwise) {
  return layout.dtype < 0 ? otherwise : get_dtype(c, layout.dtype, otherwise);
}

// ---- Sums and products ----

template <const Layout& L>
void infer_sum(InferContext& c) {
  DType dtype = c.operand(0).dtype;
  add_reduced(c, L, asked_dtype(c, L, is_integral(dtype, true) ? DType::I64 : dtype));
}

Ex summand(ExpandContext& c) {
  return c.raw(0).to(compute_type(c.result_type(0).dtype));
}

template <const Layout& L, Prim P>
void expand_sum(ExpandContext& c) {
  c.set(0, summand(c).reduce(P, reduced(c, L)));
}

template <const Layout& L>
void expand_nansum(ExpandContext& c) {
  Ex x = c.computed(0);
  Ex present = is_float(x.dtype()) ? select(is_nan(x), 0.0, x) : x;
  c.set(0, reduce_sum(present.to(summand(c).dtype()), reduced(c, L)));
}

template <const Layout& L>
void infer_mean(InferContext& c) {
  DType dtype = asked_dtype(c, L, c.operand(0).dtype);
  if (!is_float(dtype)) {
    fall_back("mean of integers"); // ATen's error names the dtype
  }
  add_reduced(c, L, dtype);
}

template <const Layout& L>
void expand_mean(ExpandContext& c) {
  c.set(0, mean_of(summand(c), reduced(c, L)));
}

void infer_count(InferContext& c) {
  add_reduced(c, {.dims = 0}, DType::I64);
}

void expand_count(ExpandContext& c) {
  c.set(0, reduce_sum(truth(c.computed(0)).to(DType::I64), reduced(c, {.dims = 0})));
}

// ---- Extrema ----

void check_nonempty(const InferContext& c, Layout layout, const char* name) {
  Dims from = c.operand(0).dims;
  if (num_elements(from) > 0) {
    return;
  }
  const Dims named = layout.dims >= 0 ? c.get_dims(layout.dims) : Dims();
  XLA_CHECK(
      !named.empty(),
      name,
      "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.");
  for (int64_t d : named) { // as the caller names it
    XLA_CHECK_KIND(Index, from[wrap_dim(d, from.size())] != 0, name, "(): Expected reduction dim ", d, " to have non-zero size.");
  }
}

constexpr char kAmax[] = "amax";
constexpr char kAmin[] = "amin";
constexpr char kMax[] = "max";
constexpr char kMin[] = "min";

template <const Layout& L, const char* Name>
void infer_extremum(InferContext& c) {
  check_nonempty(c, L, Name);
  add_reduced(c, L, c.operand(0).dtype);
}

template <const Layout& L, Ex (*Reduce)(Ex, const Dims&)>
void expand_extremum(ExpandContext& c) {
  c.set(0, Reduce(c.raw(0).to(compute_type(c.raw(0).dtype())), reduced(c, L)));
}

void infer_aminmax(InferContext& c) {
  if (c.operand(0).numel() == 0) {
    fall_back("aminmax of nothing");
  }
  add_reduced(c, kDims, c.operand(0).dtype);
  add_reduced(c, kDims, c.operand(0).dtype);
}

void expand_aminmax(ExpandContext& c) {
  c.set(0, reduce_min(c.computed(0), reduced(c, kDims)));
  c.set(1, reduce_max(c.computed(0), reduced(c, kDims)));
}

// ---- Extrema with their positions ----

constexpr char kArgmax[] = "argmax";
constexpr char kArgmin[] = "argmin";

template <const char* Name>
void infer_arg(InferContext& c) {
  require_ordered(c);
  XLA_CHECK_KIND(
      Index, c.operand(0).numel() > 0 || !c.is_none(0), Name, "(): Expected reduction dim to be specified for input.numel() == 0.");
  check_nonempty(c, kDims, Name);
  add_reduced(c, kDims, DType::I64);
}

struct Extremum {
  Ex value;
  Ex position; // the first one, also for NaN, which equals no element
};

template <Ex (*Reduce)(Ex, const Dims&)>
Extremum find_extremum(Ex x, int64_t dim) {
  Ex value = Reduce(x, {dim});
  Ex is_it = is_float(x.dtype()) ? (x == value) | is_nan(x) : x == value;
  const Dims dims = x.type().dims;
  const DType index = dims[dim] <= INT32_MAX ? DType::I32 : DType::I64;
  Ex position = {&x.b(), x.b().iota(dims, dim, index)};
  return {value, reduce_min(select(is_it, position, static_cast<double>(dims[dim])), {dim}).to(DType::I64)};
}

// Without a dim, of all elements in row-major order.
template <Ex (*Reduce)(Ex, const Dims&)>
Extremum find_extremum(ExpandContext& c) {
  Ex x = c.computed(0);
  const bool has_dim = !c.is_none(0) && !x.type().dims.empty();
  return has_dim ? find_extremum<Reduce>(x, reduced(c, kDims)[0]) : find_extremum<Reduce>(x.reshape({x.type().numel()}), 0);
}

template <Ex (*Reduce)(Ex, const Dims&)>
void expand_arg(ExpandContext& c) {
  c.set(0, find_extremum<Reduce>(c).position);
}

template <Ex (*Reduce)(Ex, const Dims&)>
void expand_extremum_with_position(ExpandContext& c) {
  Extremum found = find_extremum<Reduce>(c);
  c.set(0, found.value);
  c.set(1, found.position);
}

// ---- any, all ----

template <const Layout& L>
void infer_logical(InferContext& c) {
  bool is_byte = c.operand(0).dtype == DType::U8;
  if (L.dims >= 0 && !c.is_none(L.dims) && c.get_dims(L.dims).empty()) {
    fall_back("an empty list of dims, which reduces nothing");
  }
  add_reduced(c, L, is_byte ? DType::U8 : DType::Bool);
}

template <const Layout& L, Prim P>
void expand_logical(ExpandContext& c) {
  c.set(0, truth(c.computed(0)).reduce(P, reduced(c, L)));
}

// ---- Variances ----

template <bool WithMean>
void infer_var(InferContext& c) {
  require_float(c, 0);
  add_reduced(c, kVar, c.operand(0).dtype);
  if (WithMean) {
    add_reduced(c, kVar, c.operand(0).dtype);
  }
}

// The mean, corrected by the mean of the remainders: exact for equal numbers, so their variance is 0.
Ex exact_mean_of(Ex x, const Dims& over) {
  Ex mean = mean_of(x, over);
  return mean + mean_of(x - mean, over);
}

// In two passes, as the sum of squares alone loses digits.
template <bool Root>
void expand_var(ExpandContext& c) {
  Ex x = c.computed(0);
  Dims over = reduced(c, kVar);
  Ex mean = exact_mean_of(x, over);
  double count = static_cast<double>(reduced_count(x.type().dims, over)) - c.get_double(1, 1);
  Ex var = reduce_sum(sq(x - mean), over) / std::max(count, 0.0);
  c.set(0, Root ? sqrt(var) : var);
  if (c.num_results() > 1) {
    c.set(1, mean);
  }
}

// ---- Norms ----

template <const Layout& L>
void infer_norm(InferContext& c) {
  DType dtype = asked_dtype(c, L, c.operand(0).dtype);
  double order = c.get_double(0, 2);
  if (!is_float(dtype) || !is_float(c.operand(0).dtype) || (num_elements(c.operand(0).dims) == 0 && (order < 0 || order == kInfinity))) {
    fall_back("a norm of integers, or without elements");
  }
  add_reduced(c, L, dtype);
}

Ex norm_of(Ex x, double order, const Dims& over) {
  if (order == kInfinity) {
    return reduce_max(abs(x), over);
  }
  if (order == -kInfinity) {
    return reduce_min(abs(x), over);
  }
  if (order == 0) {
    return reduce_sum(truth(x).to(x.dtype()), over);
  }
  if (order == 1) {
    return reduce_sum(abs(x), over);
  }
  if (order == 2) {
    return sqrt(reduce_sum(sq(x), over));
  }
  Ex sum = reduce_sum(pow(abs(x), x.constant(order)), over);
  return pow(sum, sum.constant(1 / order));
}

template <const Layout& L>
void expand_norm(ExpandContext& c) {
  c.set(0, norm_of(summand(c), c.get_double(0, 2), reduced(c, L)));
}

void infer_logsumexp(InferContext& c) {
  require_float(c, 0);
  if (c.operand(0).numel() == 0 || c.get_dims(0).empty()) {
    fall_back("logsumexp of nothing");
  }
  add_reduced(c, kDims, c.operand(0).dtype);
}

void expand_logsumexp(ExpandContext& c) {
  Ex x = c.computed(0);
  Dims over = reduced(c, kDims);
  Ex top = reduce_max(x, over);
  Ex shift = select(abs(top) == kInfinity, 0.0, top);
  c.set(0, log(reduce_sum(exp(x - shift), over)) + shift);
}

constinit const Op kRows[] = {
    COMPOSITE("sum", infer_sum<kFullTyped>, (expand_sum<kFullTyped, Prim::kReduceSum>), .traits = kComplex),
    COMPOSITE("sum.dim_IntList", infer_sum<kDimsTyped>, (expand_sum<kDimsTyped, Prim::kReduceSum>), .traits = kComplex),
    COMPOSITE("prod", infer_sum<kFullTyped>, (expand_sum<kFullTyped, Prim::kReduceProd>), .traits = kComplex),
    COMPOSITE("prod.dim_int", infer_sum<kDimsTyped>, (expand_sum<kDimsTyped, Prim::kReduceProd>), .traits = kComplex),
    COMPOSITE("nansum", infer_sum<kDimsTyped>, expand_nansum<kDimsTyped>),
    COMPOSITE("mean", infer_mean<kFullTyped>, expand_mean<kFullTyped>, .traits = kComplex),
    COMPOSITE("mean.dim", infer_mean<kDimsTyped>, expand_mean<kDimsTyped>, .traits = kComplex),
    COMPOSITE("count_nonzero.dim_IntList", infer_count, expand_count, .traits = kComplex),
    COMPOSITE("amax", (infer_extremum<kDims, kAmax>), (expand_extremum<kDims, reduce_max>)),
    COMPOSITE("amin", (infer_extremum<kDims, kAmin>), (expand_extremum<kDims, reduce_min>)),
    COMPOSITE("max", (infer_extremum<kFull, kMax>), (expand_extremum<kFull, reduce_max>)),
    COMPOSITE("min", (infer_extremum<kFull, kMin>), (expand_extremum<kFull, reduce_min>)),
    COMPOSITE("aminmax", infer_aminmax, expand_aminmax),
    COMPOSITE("argmax", infer_arg<kArgmax>, expand_arg<reduce_max>),
    COMPOSITE("argmin", infer_arg<kArgmin>, expand_arg<reduce_min>),
    COMPOSITE("max.dim", infer_values_indices<0>, expand_extremum_with_position<reduce_max>),
    COMPOSITE("min.dim", infer_values_indices<0>, expand_extremum_with_position<reduce_min>),
    COMPOSITE("any", infer_logical<kFull>, (expand_logical<kFull, Prim::kReduceOr>), .traits = kComplex),
    COMPOSITE("any.dim", infer_logical<kDims>, (expand_logical<kDims, Prim::kReduceOr>), .traits = kComplex),
    COMPOSITE("any.dims", infer_logical<kDims>, (expand_logical<kDims, Prim::kReduceOr>), .traits = kComplex),
    COMPOSITE("all", infer_logical<kFull>, (expand_logical<kFull, Prim::kReduceAnd>), .traits = kComplex),
    COMPOSITE("all.dim", infer_logical<kDims>, (expand_logical<kDims, Prim::kReduceAnd>), .traits = kComplex),
    COMPOSITE("all.dims", infer_logical<kDims>, (expand_logical<kDims, Prim::kReduceAnd>), .traits = kComplex),
    COMPOSITE("var.correction", infer_var<false>, expand_var<false>, .traits = kComplex),
    COMPOSITE("std.correction", infer_var<false>, expand_var<true>, .traits = kComplex),
    COMPOSITE("var_mean.correction", infer_var<true>, expand_var<false>, .traits = kComplex),
    COMPOSITE("std_mean.correction", infer_var<true>, expand_var<true>, .traits = kComplex),
    COMPOSITE("linalg_vector_norm", infer_norm<kNorm>, expand_norm<kNorm>, .traits = kComplex),
    COMPOSITE("norm.Scalar", infer_norm<kFull>, expand_norm<kFull>, .traits = kComplex),
    COMPOSITE("norm.ScalarOpt_dtype", infer_norm<kNormTyped>, expand_norm<kNormTyped>, .traits = kComplex),
    COMPOSITE("norm.ScalarOpt_dim", infer_norm<kNormDims>, expand_norm<kNormDims>, .traits = kComplex),
    COMPOSITE("norm.ScalarOpt_dim_dtype", infer_norm<kNorm>, expand_norm<kNorm>, .traits = kComplex),
    COMPOSITE("logsumexp", infer_logsumexp, expand_logsumexp, .traits = kComplex),
};

} // namespace

std::span<const Op> reduce_ops() {
  return kRows;
}

} // namespace torch_xla
