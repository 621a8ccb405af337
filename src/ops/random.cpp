// Draws from philox streams. Operands end with seed and offset; each element takes the words of its linear index.
#include <algorithm>
#include <bit>
#include <limits>

#include "ops/math.h"
#include "ops/row.h"
#include "ops/rules.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

// The words of one draw.
class Draw {
 public:
  Draw(ExpandContext& c, const Dims& dims) : c_(c), dims_(dims) {}

  // Word `lane` of each element, as its 32 bits.
  Ex word(int64_t lane) const {
    size_t n = c_.size();
    return {&c_.b(), c_.b().random_bits(c_.raw(n - 2).id(), c_.raw(n - 1).id(), dims_, lane)};
  }
  // The upper bits of a word, as a number.
  Ex upper(int64_t lane, int bits, DType dtype) const {
    Ex w = word(lane);
    return w.binary(Prim::kShrL, w.constant(32 - bits)).to(dtype);
  }
  // Uniform in [0, 1): draw number i of an element; 53 bits for double, 24 for float, each number equally likely.
  Ex uniform(DType dtype, int64_t i = 0) const {
    if (dtype != DType::F64) {
      return upper(i, 24, dtype) * 0x1p-24;
    }
    return (upper(2 * i, 27, dtype) * 0x1p26 + upper(2 * i + 1, 26, dtype)) * 0x1p-53;
  }
  // In (0, 1), for logarithms: finer near 0 in float, as 31 bits are rounded to 24. The factor is enough below 2^-31 that no number is 1.
  Ex open_uniform(DType dtype, int64_t i = 0) const {
    if (dtype != DType::F64) {
      return (upper(i, 31, dtype) + 0.5) * (0x1p-31 - 0x1p-55);
    }
    return (upper(2 * i, 27, dtype) * 0x1p25 + upper(2 * i + 1, 25, dtype) + 0.5) * 0x1p-52;
  }
  // True with the probability p, a number in F64: for p * 2^32 of the words, read as signed here.
  Ex chance(Ex p) const {
    Ex last = (p * 0x1p32).unary(Prim::kRoundEven) - (0x1p31 + 1);
    return (word(0) <= max(last, -0x1p31).to(DType::I32)) & (p > 0.0);
  }
  // Box-Muller, one of the pair.
  Ex normal(DType dtype) const {
    constexpr double kTwoPi = 6.28318530717958647693;
    return sqrt(log(open_uniform(dtype, 0)) * -2.0) * cos(uniform(dtype, 1) * kTwoPi);
  }
  // 63 bits.
  Ex integer() const {
    Ex low = word(0).to(DType::I64) & int64(0xffffffff);
    Ex high = word(1).to(DType::I64) & int64(0x7fffffff);
    return high.binary(Prim::kShl, int64(32)) | low;
  }
  Ex int64(int64_t v) const {
    return {&c_.b(), c_.b().constant_int(v, DType::I64)};
  }

 private:
  ExpandContext& c_;
  Dims dims_;
};

Draw draw(ExpandContext& c) {
  return {c, c.result_type(0).dims};
}

// The type in which floats are drawn.
DType draw_type(ExpandContext& c) {
  DType dtype = c.result_type(0).dtype;
  return dtype == DType::F64 ? dtype : DType::F32;
}

Ex number(ExpandContext& c, size_t i) {
  return c.raw(i).to(draw_type(c));
}

double smallest_value(DType t) {
  const int least_exponent = t == DType::F64 ? -1022 : t == DType::F16 ? -14 : -126;
  return std::ldexp(1.0, least_exponent + 1 - significant_bits(t));
}

// The largest number of `type` below x, in F64; x is a number of the type. A step down of 5/8 to 5/4 of the distance rounds to it.
Ex next_below(Ex x, DType type) {
  return (x - max(abs(x) * std::ldexp(1.25, -significant_bits(type)), smallest_value(type) * 0.625)).to(type);
}

// Numbers that round to `to` or beyond become the number before it.
void expand_uniform(ExpandContext& c) {
  const DType type = c.result_type(0).dtype;
  const DType computes = draw_type(c);
  Ex from = c.raw(1).to(type);
  Ex to = c.raw(2).to(type);
  Ex last = max(next_below(to.to(DType::F64), type).to(computes), from.to(computes)); // `from` where the two are one
  Ex x = draw(c).uniform(computes) * (to.to(computes) - from.to(computes)) + from.to(computes);
  c.set(0, select(x < last, x, last));
}

Ex scaled_normal(ExpandContext& c) {
  return draw(c).normal(draw_type(c)) * number(c, 2) + number(c, 1);
}

void expand_normal(ExpandContext& c) {
  c.set(0, scaled_normal(c));
}

// `x`; the run fails with the message if `fits` is false somewhere.
Ex checked(ExpandContext& c, Ex fits, Ex x, const char* message) {
  Ex all = reduce_min(fits, all_dims(fits.type().dims.size())).reshape({});
  Ex zero = x.constant(0);
  ValueId operands[] = {all.id(), zero.id()};
  Type type = zero.type();
  const Op& check = get_op("aten::_functional_assert_async.msg");
  return x + Ex(&c.b(), c.b().library(check, operands, {std::string(message)}, {&type, 1}));
}

// Mean and standard deviation; one or both are tensors. The run checks a tensor of deviations. ATen rounds after each step.
template <bool ChecksDeviation>
void expand_normal_of(ExpandContext& c) {
  Ex deviation = number(c, 1);
  if (ChecksDeviation) {
    deviation = checked(c, c.raw(1) >= 0.0, deviation, "normal expects all elements of std >= 0.0");
  }
  auto rounded = [&c](Ex x) { return x.to(c.result_type(0).dtype).to(draw_type(c)); };
  c.set(0, rounded(rounded(draw(c).normal(draw_type(c))) * deviation) + number(c, 0));
}

void infer_normal_of_tensors(InferContext& c) {
  require_float(c, 0);
  require_float(c, 1);
  c.add_result(c.operand(0).dtype, broadcast_dims(c.operand(0).dims, c.operand(1).dims));
}

void expand_log_normal(ExpandContext& c) {
  c.set(0, exp(scaled_normal(c)));
}

void expand_exponential(ExpandContext& c) {
  c.set(0, -log(draw(c).open_uniform(draw_type(c))) / number(c, 1));
}

// In double for all types: float has too few numbers near 1/2, and for probabilities near 1.
void expand_cauchy(ExpandContext& c) {
  constexpr double kPi = 3.14159265358979323846;
  c.set(0, tan((draw(c).open_uniform(DType::F64) - 0.5) * kPi) * c.raw(2) + c.raw(1));
}

void expand_geometric(ExpandContext& c) {
  Ex trials = log(draw(c).open_uniform(DType::F64)) / log1p(-c.raw(1));
  c.set(0, trials.unary(Prim::kCeil));
}

// 1 with the probability in operand P, a number.
template <size_t P>
void expand_bernoulli(ExpandContext& c) {
  c.set(0, draw(c).chance(c.raw(P)));
}

// The same for a tensor of probabilities. A number is checked when recorded; the run checks a tensor.
template <size_t P>
void expand_checked_bernoulli(ExpandContext& c) {
  Ex p = c.raw(P).to(compute_type(c.raw(P).dtype()));
  const char* message = "Expected p_in >= 0 && p_in <= 1";
  c.set(0, draw(c).uniform(p.dtype()) < checked(c, (p >= 0.0) & (p <= 1.0), p, message));
}

void infer_bernoulli_tensor(InferContext& c) {
  require_float(c, 1);
  if (broadcast_dims(c.operand(0).dims, c.operand(1).dims) != c.operand(0).dims) {
    fall_back("probabilities of a larger shape");
  }
  like_operand<0>(c);
}

// ---- random_: attributes none, to, or from and to ----

// One more than the largest value that random_() draws.
int64_t default_end(DType t) {
  return t == DType::I64 ? INT64_MAX : (int64_t{1} << significant_bits(t)) + is_float(t);
}

bool holds(DType t, int64_t v) {
  if (is_float(t)) {
    return t != DType::F16 || std::abs(v) <= 65504;
  }
  return v <= default_end(t) - 1 + (t == DType::I64) && (is_unsigned(t) ? v >= 0 : v >= -default_end(t) - (t == DType::I64));
}

// The next whole number of the type at or below v.
int64_t whole_below(DType t, int64_t v) {
  const auto magnitude = v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  const int excess = is_float(t) ? std::max(0, static_cast<int>(std::bit_width(magnitude)) - significant_bits(t)) : 0;
  return v >> excess << excess;
}

// The range of random_.
struct WholeRange {
  int64_t from;
  int64_t to;
  int64_t first; // that the type holds
  int64_t last;

  template <class Context>
  WholeRange(const Context& c, DType t) {
    size_t n = c.num_attrs();
    from = n == 2 ? c.get_int(0) : 0;
    to = n ? c.get_int(n - 1, default_end(t)) : default_end(t);
    first = from == INT64_MIN ? from : -whole_below(t, -from);
    last = to == INT64_MIN ? to : whole_below(t, to - 1);
  }
};

void infer_random(InferContext& c) {
  const DType t = c.operand(0).dtype;
  const WholeRange range(c, t);
  if (range.first > range.last || (range.from < 0 && range.to > INT64_MAX + range.from) || !holds(t, range.from) ||
      !holds(t, range.to - 1)) {
    fall_back("random_ with this range");
  }
  like_operand<0>(c);
}

void expand_random(ExpandContext& c) {
  const WholeRange range(c, c.result_type(0).dtype);
  Draw d = draw(c);
  Ex x = rem(d.integer(), d.int64(range.to - range.from)) + d.int64(range.from);
  x = range.first == range.from ? x : max(x, d.int64(range.first));
  c.set(0, range.last == range.to - 1 ? x : min(x, d.int64(range.last))); // others would round to `to`
}

void infer_geometric(InferContext& c) {
  if (c.operand(0).dtype == DType::Bool) {
    fall_back("geometric_ of Bool");
  }
  like_operand<0>(c);
}

// ---- native_dropout: operands input, p; attribute train ----

void infer_dropout(InferContext& c) {
  like_float_operand<0>(c);
  c.add_result(DType::Bool, c.operand(0).dims);
}

void expand_dropout(ExpandContext& c) {
  if (!c.get_bool(0, true)) {
    c.set(0, c.raw(0));
    c.set(1, {&c.b(), c.b().constant_int(1, DType::Bool)});
    return;
  }
  Ex x = c.computed(0);
  Ex keep = 1.0 - c.raw(1).to(DType::F64);
  Ex mask = draw(c).chance(keep);
  Ex scale = select(keep == 0.0, 0.0, 1.0 / keep).to(x.dtype());
  c.set(0, x * select(mask, scale, 0.0)); // a dropped NaN stays NaN, as in ATen
  c.set(1, mask);
}

// ---- Numbers that ATen accepts for draws; names of the operands after self ----

using Numbers = std::span<const double>;

// Beyond float's range ATen's check depends on the dtype.
bool is_range(Numbers n, const Attrs&) { // from, to
  constexpr double kMax = std::numeric_limits<float>::max();
  return -kMax <= n[0] && n[0] <= n[1] && n[1] <= kMax && n[1] - n[0] <= kMax;
}
bool has_deviation(Numbers n, const Attrs&) { // mean, std
  return n[1] >= 0;
}
bool is_deviation(Numbers n, const Attrs&) { // std
  return n[0] >= 0;
}
bool has_positive_deviation(Numbers n, const Attrs&) { // mean, std; median, sigma
  return n[1] > 0;
}
bool has_rate(Numbers n, const Attrs&) { // lambd
  return n[0] > 0;
}
bool is_probability(Numbers n, const Attrs&) { // p
  return n[0] >= 0 && n[0] <= 1;
}
bool is_proper_probability(Numbers n, const Attrs&) { // p
  return n[0] > 0 && n[0] < 1;
}
void infer_multinomial(InferContext& c) { // num_samples, replacement
  Dims dims = c.operand(0).dims;
  int64_t samples = c.get_int(0);
  if (dims.empty() || dims.size() > 2 || samples <= 0 || (!c.get_bool(1) && samples > dims.back())) {
    fall_back("arguments that ATen refuses");
  }
  dims.back() = samples;
  c.add_result(DType::I64, dims);
}

constinit const Op kRows[] = {
    COMPOSITE("uniform_", like_float_operand<0>, expand_uniform, .traits = kRandom | kComplex | kNumbersFit, .takes = is_range),
    COMPOSITE("normal_", like_float_operand<0>, expand_normal, .traits = kRandom | kComplex, .takes = has_deviation),
    COMPOSITE("normal.Tensor_float", like_float_operand<0>, expand_normal_of<false>, .traits = kRandom, .takes = is_deviation),
    COMPOSITE("normal.float_Tensor", like_float_operand<1>, expand_normal_of<true>, .traits = kRandom),
    COMPOSITE("normal.Tensor_Tensor", infer_normal_of_tensors, expand_normal_of<true>, .traits = kRandom),
    COMPOSITE("log_normal_", like_float_operand<0>, expand_log_normal, .traits = kRandom, .takes = has_positive_deviation),
    COMPOSITE("exponential_", like_float_operand<0>, expand_exponential, .traits = kRandom, .takes = has_rate),
    COMPOSITE("cauchy_", like_float_operand<0>, expand_cauchy, .traits = kRandom, .takes = has_positive_deviation),
    COMPOSITE("geometric_", infer_geometric, expand_geometric, .traits = kRandom, .takes = is_proper_probability),
    COMPOSITE("bernoulli", like_float_operand<0>, expand_checked_bernoulli<0>, .traits = kRandom),
    COMPOSITE("bernoulli.p", like_operand<0>, expand_bernoulli<1>, .traits = kRandom, .takes = is_probability),
    COMPOSITE("bernoulli_.float", like_operand<0>, expand_bernoulli<1>, .traits = kRandom, .takes = is_probability),
    COMPOSITE("bernoulli_.Tensor", infer_bernoulli_tensor, expand_checked_bernoulli<1>, .traits = kRandom | kHostArgument),
    COMPOSITE("random_", infer_random, expand_random, .traits = kRandom),
    COMPOSITE("random_.to", infer_random, expand_random, .traits = kRandom),
    COMPOSITE("random_.from", infer_random, expand_random, .traits = kRandom),
    COMPOSITE(
        "native_dropout", infer_dropout, expand_dropout, .layout = ResultLayout::kOfOperands, .traits = kRandom, .takes = is_probability),
    SHAPED_CALL("multinomial", infer_multinomial, kAllFloats, .traits = kRandom | kChecksValues),
    SHAPED_CALL("poisson", like_operand<0>, kAllFloats, .traits = kRandom | kChecksValues),
    SHAPED_CALL("_standard_gamma", like_operand<0>, kFloats, .traits = kRandom),
    SHAPED_CALL("binomial", like_operand<0>, kAllFloats, .traits = kRandom | kChecksValues),
    SHAPED_CALL("_sample_dirichlet", like_operand<0>, kFloats, .traits = kRandom),
    SHAPED_CALL("_standard_gamma_grad", like_operand<0>, kFloats),
    SHAPED_CALL("_dirichlet_grad", like_operand<0>, kFloats),
    // Returns operand 1; the run fails if operand 0 is false.
    LIBRARY("_functional_assert_async.msg", like_operand<1>, .traits = kChecksValues),
};

} // namespace

std::span<const Op> random_ops() {
  return kRows;
}

} // namespace torch_xla
