// Layer, batch and group norm, forward and backward. All statistics are computed in float32 for the 16-bit types, as ATen's kernels do.
#include "core/errors.h"
#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// An optional operand in the type that x has, or null.
struct Optional {
  bool given = false;
  Ex value;
};

Optional optional(ExpandContext& c, size_t i, Ex like) {
  return c.has(i) ? Optional{true, c.raw(i).to(like.dtype())} : Optional{false, like};
}

// ---- Shared by the three normalizations ----

// Statistics take the weight's type if it is wider than the input's.
DType statistics_dtype(const InferContext& c, size_t weight, size_t bias) {
  DType dtype = c.operand(0).dtype;
  for (size_t i : {weight, bias}) {
    if (c.has(i) && c.operand(i).dtype != dtype) {
      return c.operand(i).dtype;
    }
  }
  return dtype;
}

// Parameters have the input's dtype, or float32 beside a 16-bit one.
void check_parameter(const InferContext& c, size_t i, const Dims& want) {
  if (!c.has(i)) {
    return;
  }
  DType input = c.operand(0).dtype;
  DType dtype = c.operand(i).dtype;
  if (c.operand(i).dims != want || (dtype != input && !(is_reduced_float(input) && dtype == DType::F32))) {
    fall_back("a weight or bias of a wrong shape or dtype");
  }
}

struct Statistics {
  Ex mean;
  Ex var; // of the population
};

// The second pass also corrects the mean: for equal numbers the mean is exact, so they become 0. Otherwise 1 / sqrt(eps) would turn the
// rounding error of their sum into 1e-4.
Statistics statistics(Ex x, const Dims& over) {
  Ex mean = mean_of(x, over);
  Ex rest = x - mean;
  Ex off = mean_of(rest, over);
  return {mean + off, max(mean_of(sq(rest), over) - sq(off), 0.0)};
}

Ex affine(Ex y, const Optional& weight, const Optional& bias, const Dims& dims) {
  if (weight.given) {
    y = y * weight.value.reshape(dims);
  }
  return bias.given ? y + bias.value.reshape(dims) : y;
}

// The gradient of the input: h is the gradient of the normalized values.
Ex normalized_backward(Ex h, Ex normalized, Ex rstd, const Dims& over) {
  return rstd * (h - mean_of(h, over) - normalized * mean_of(h * normalized, over));
}

Ex inverse_root(Ex var, double eps) {
  return 1.0 / sqrt(var + eps);
}

// Adds result i of a backward row: type of operand `like`, or undefined if the mask says so.
void add_masked(InferContext& c, bool wanted, const Type& type) {
  if (wanted) {
    c.add_result(type.dtype, type.dims);
  } else {
    c.add_undefined();
  }
}

// ---- Layer norm: operands input, weight, bias; attributes normalized shape, eps ----

size_t leading_rank(const InferContext& c) {
  return c.operand(0).dims.size() - c.get_dims(0).size();
}

Dims trailing_dims(size_t lead, size_t rank) {
  Dims over;
  for (size_t i = lead; i < rank; ++i) {
    over.push_back(static_cast<int64_t>(i));
  }
  return over;
}

void infer_layer_norm(InferContext& c) {
  like_float_operand<0>(c);
  Dims dims = c.operand(0).dims;
  Dims shape = c.get_dims(0);
  if (shape.empty() || shape.size() > dims.size() || !std::equal(shape.begin(), shape.end(), dims.end() - shape.size())) {
    fall_back("normalized_shape does not fit the input");
  }
  check_parameter(c, 1, shape);
  check_parameter(c, 2, shape);
  Dims kept = kept_dims(dims, trailing_dims(leading_rank(c), dims.size()));
  c.add_result(statistics_dtype(c, 1, 2), kept);
  c.add_result(statistics_dtype(c, 1, 2), kept);
}

void expand_layer_norm(ExpandContext& c) {
  Ex x = c.computed(0);
  Dims shape = c.get_dims(0);
  auto [mean, var] = statistics(x, trailing_dims(leading_rank(c), x.type().dims.size()));
  Ex rstd = inverse_root(var, c.get_double(1));
  c.set(0, affine((x - mean) * rstd, optional(c, 1, x), optional(c, 2, x), shape));
  c.set(1, mean);
  c.set(2, rstd);
}

// Operands gradient, input, mean, rstd, weight, bias; attributes normalized shape, output mask.
void infer_layer_norm_backward(InferContext& c) {
  Type parameter{c.has(4) ? c.operand(4).dtype : c.operand(1).dtype, c.get_dims(0)};
  add_masked(c, get_flag(c, 1, 0), c.operand(1));
  add_masked(c, get_flag(c, 1, 1) && c.has(4), parameter);
  add_masked(c, get_flag(c, 1, 2) && (c.has(5) || c.has(4)), parameter);
}

void expand_layer_norm_backward(ExpandContext& c) {
  Ex g = c.computed(0);
  Ex x = c.computed(1);
  Ex rstd = c.raw(3).to(x.dtype());
  Ex normalized = (x - c.raw(2).to(x.dtype())) * rstd;
  Optional weight = optional(c, 4, x);
  size_t lead = leading_rank(c);
  Ex h = weight.given ? g * weight.value : g;
  c.set(0, normalized_backward(h, normalized, rstd, trailing_dims(lead, x.type().dims.size())));
  c.set(1, reduce_sum(g * normalized, all_dims(lead)));
  c.set(2, reduce_sum(g, all_dims(lead)));
}

// ---- Batch norm: operands input, weight, bias, running mean, running var; attributes training, momentum, eps ----

// All dims but the channels, which are dim 1.
Dims batch_dims(size_t rank) {
  Dims over{0};
  for (size_t i = 2; i < rank; ++i) {
    over.push_back(static_cast<int64_t>(i));
  }
  return over;
}

Dims channel_dims(const Dims& dims) {
  return kept_dims(dims, batch_dims(dims.size()));
}

DType batch_statistics_dtype(const InferContext& c) {
  DType dtype = statistics_dtype(c, 1, 2);
  return dtype == c.operand(0).dtype ? statistics_dtype(c, 3, 4) : dtype;
}

void add_running(InferContext& c, size_t i) {
  add_masked(c, c.get_bool(0) && c.has(i), c.has(i) ? c.operand(i) : Type{});
}

// Results output, saved mean, saved 1/std (empty in evaluation, as ATen's), new running mean, new running var.
void infer_batch_norm(InferContext& c) {
  like_float_operand<0>(c);
  Dims dims = c.operand(0).dims;
  bool training = c.get_bool(0);
  if (dims.size() < 2 || num_elements(dims) == 0 || (!training && !(c.has(3) && c.has(4)))) {
    fall_back("batch norm of this input");
  }
  for (size_t i = 1; i < 5; ++i) {
    check_parameter(c, i, {dims[1]});
  }
  c.add_result(batch_statistics_dtype(c), {training ? dims[1] : 0});
  c.add_result(batch_statistics_dtype(c), {training ? dims[1] : 0});
  add_running(c, 3);
  add_running(c, 4);
}

Ex updated(ExpandContext& c, size_t i, Ex value) {
  double momentum = c.get_double(1);
  return c.raw(i).to(value.dtype()) * (1 - momentum) + value.reshape(c.operand(i).dims) * momentum;
}

void expand_batch_statistics(ExpandContext& c, const Statistics& s, Ex rstd, int64_t count) {
  c.set(1, s.mean);
  c.set(2, rstd);
  if (c.has(3)) {
    c.set(3, updated(c, 3, s.mean));
  }
  if (c.has(4)) {
    c.set(4, updated(c, 4, s.var * (static_cast<double>(count) / static_cast<double>(count - 1))));
  }
}

void expand_batch_norm(ExpandContext& c) {
  Ex x = c.computed(0);
  Dims dims = x.type().dims;
  Dims channels = channel_dims(dims);
  Dims over = batch_dims(dims.size());
  bool training = c.get_bool(0);
  Statistics s =
      training ? statistics(x, over) : Statistics{c.raw(3).to(x.dtype()).reshape(channels), c.raw(4).to(x.dtype()).reshape(channels)};
  Ex rstd = inverse_root(s.var, c.get_double(2));
  c.set(0, affine((x - s.mean) * rstd, optional(c, 1, x), optional(c, 2, x), channels));
  if (training) {
    expand_batch_statistics(c, s, rstd, reduced_count(dims, over));
    return;
  }
  Ex none(&c.b(), c.b().broadcast(c.b().constant(0, x.dtype()), {0}));
  c.set(1, none);
  c.set(2, none);
}

// Operands gradient, input, weight, running mean, running var, saved mean, saved 1/std; attributes train, eps, output mask.
void infer_batch_norm_backward(InferContext& c) {
  Type input = c.operand(1);
  Type parameter{c.has(2) ? c.operand(2).dtype : input.dtype, {input.dims[1]}};
  add_masked(c, get_flag(c, 2, 0), input);
  add_masked(c, get_flag(c, 2, 1), parameter);
  add_masked(c, get_flag(c, 2, 2), parameter);
}

void expand_batch_norm_backward(ExpandContext& c) {
  Ex g = c.computed(0);
  Ex x = c.computed(1);
  Dims over = batch_dims(x.type().dims.size());
  Dims channels = channel_dims(x.type().dims);
  bool train = c.get_bool(0);
  Ex mean = c.raw(train ? 5 : 3).to(x.dtype()).reshape(channels);
  Ex rstd = train ? c.raw(6).to(x.dtype()).reshape(channels) : inverse_root(c.raw(4).to(x.dtype()).reshape(channels), c.get_double(1));
  Ex normalized = (x - mean) * rstd;
  Optional weight = optional(c, 2, x);
  Ex scale = weight.given ? rstd * weight.value.reshape(channels) : rstd;
  c.set(0, train ? normalized_backward(g, normalized, scale, over) : g * scale);
  c.set(1, reduce_sum(g * normalized, over));
  c.set(2, reduce_sum(g, over));
}

// ---- Group norm: operands input, weight, bias; attributes N, C, HxW, groups, eps ----

// [N, groups, C / groups, HxW], with N, C, HxW and groups from attribute 0 on.
Dims grouped_dims(const InferContext& c) {
  int64_t groups = c.get_int(3);
  return {c.get_int(0), groups, c.get_int(1) / groups, c.get_int(2)};
}

// The same rank, for values per channel.
Dims grouped_channels(const Dims& grouped) {
  return {1, grouped[1], grouped[2], 1};
}

void infer_group_norm(InferContext& c) {
  like_float_operand<0>(c);
  if (c.get_int(3) <= 0 || c.get_int(1) % c.get_int(3) || num_elements(c.operand(0).dims) == 0) {
    fall_back("group norm of this input");
  }
  check_parameter(c, 1, {c.get_int(1)});
  check_parameter(c, 2, {c.get_int(1)});
  c.add_result(statistics_dtype(c, 1, 2), {c.get_int(0), c.get_int(3)});
  c.add_result(statistics_dtype(c, 1, 2), {c.get_int(0), c.get_int(3)});
}

void expand_group_norm(ExpandContext& c) {
  Dims grouped = grouped_dims(c);
  Ex x = c.computed(0).reshape(grouped);
  auto [mean, var] = statistics(x, {2, 3});
  Ex rstd = inverse_root(var, c.get_double(4));
  c.set(0, affine((x - mean) * rstd, optional(c, 1, x), optional(c, 2, x), grouped_channels(grouped)));
  c.set(1, mean);
  c.set(2, rstd);
}

// Operands gradient, input, mean, rstd, weight; attributes N, C, HxW, groups, output mask.
void infer_group_norm_backward(InferContext& c) {
  Type input = c.operand(1);
  Type parameter{c.has(4) ? c.operand(4).dtype : input.dtype, {c.get_int(1)}};
  add_masked(c, get_flag(c, 4, 0), input);
  add_masked(c, get_flag(c, 4, 1), parameter);
  add_masked(c, get_flag(c, 4, 2), parameter);
}

void expand_group_norm_backward(ExpandContext& c) {
  Dims grouped = grouped_dims(c);
  Dims per_group{grouped[0], grouped[1], 1, 1};
  Ex g = c.computed(0).reshape(grouped);
  Ex x = c.computed(1).reshape(grouped);
  Ex rstd = c.raw(3).to(x.dtype()).reshape(per_group);
  Ex normalized = (x - c.raw(2).to(x.dtype()).reshape(per_group)) * rstd;
  Optional weight = optional(c, 4, x);
  Ex h = weight.given ? g * weight.value.reshape(grouped_channels(grouped)) : g;
  c.set(0, normalized_backward(h, normalized, rstd, {2, 3}));
  c.set(1, reduce_sum(g * normalized, {0, 3}));
  c.set(2, reduce_sum(g, {0, 3}));
}

// ATen's shape rule returns float16 for the norms of float16.
void infer_weight_norm(InferContext& c) {
  Type g = c.operand(1);
  like_operand<0>(c);
  c.add_result(is_reduced_float(g.dtype) ? DType::F32 : g.dtype, g.dims);
}

constinit const Op kRows[] = {
    COMPOSITE("native_layer_norm", infer_layer_norm, expand_layer_norm),
    COMPOSITE("native_layer_norm_backward", infer_layer_norm_backward, expand_layer_norm_backward),
    COMPOSITE(
        "native_batch_norm", infer_batch_norm, expand_batch_norm, .layout = ResultLayout::kPlainFormatOfOperand, .traits = kOwnKernel),
    COMPOSITE(
        "native_batch_norm_backward",
        infer_batch_norm_backward,
        expand_batch_norm_backward,
        .layout = ResultLayout::kFormatOfOperand,
        .order_of = 1),
    COMPOSITE("native_group_norm", infer_group_norm, expand_group_norm, .layout = ResultLayout::kFormatOfOperand),
    COMPOSITE(
        "native_group_norm_backward",
        infer_group_norm_backward,
        expand_group_norm_backward,
        .layout = ResultLayout::kFormatOfOperand,
        .order_of = 1),
    SHAPED_CALL("_weight_norm_interface", infer_weight_norm, kAllFloats, .reads = kDenseOperands),
    CALL("_weight_norm_interface_backward", kAllFloats, .reads = kDenseOperands),
};

} // namespace

std::span<const Op> norm_ops() {
  return kRows;
}

bool is_batch_norm(const Op& op) {
  return op.expand == &expand_batch_norm;
}

} // namespace torch_xla
