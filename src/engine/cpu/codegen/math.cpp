// Functions by polynomials, our own minimax fits with relative errors below 0.3 ulp; tests/cpp/math_test.cpp holds the functions' bounds.
#include "engine/cpu/codegen/math.h"

#include <iterator>

#include "core/errors.h"
#include "engine/cpu/codegen/exponential.h"
#include "engine/cpu/codegen/external.h"
#include "engine/cpu/codegen/trigonometry.h"

namespace torch_xla::cpu {

namespace {

constexpr double kInf = __builtin_inf();
constexpr double kSqrtHalf = 0.707106781186547524;

Value* emit_exp(const Vec& v, Value* x) {
  return exp_bounded(v, v.at_least(v.at_most(x, v.f32(89)), v.f32(-104)));
}

// 2^n * (e^r - 1) + (2^n - 1), computed at half the size so that n = 128 does not overflow too early.
Value* emit_expm1(const Vec& v, Value* x) {
  Reduced reduced = reduce_exp(v, v.at_least(v.at_most(x, v.f32(89)), v.f32(-18)));
  Value* q = short_expm1(v, reduced.r);
  Value* half = power_of_two(v, reduced.bits, -1);
  Value* sum = v.fma(half, q, v.ir.CreateFSub(half, v.f32(0.5)));
  return v.copysign(v.ir.CreateFAdd(sum, sum), x);
}

// e * ln 2 + log(1 + f) for f in [-1/3, 1/3].
Value* log_sum(const Vec& v, Value* e, Value* f) {
  Value* p = v.poly(
      f,
      {-0.12893007695674896,
       0.1398579478263855,
       -0.12183987349271774,
       0.14005617797374725,
       -0.16680504381656647,
       0.20010419189929962,
       -0.24999797344207764,
       0.3333321511745453});
  Value* square = v.ir.CreateFMul(f, f);
  Value* low = v.fma(v.fma(f, p, v.f32(-0.5)), square, v.ir.CreateFMul(e, v.f32(kLn2Lo)));
  return v.fma(e, v.f32(kLn2Hi), v.ir.CreateFAdd(f, low));
}

// The exponent e that puts x / 2^e in [2/3, 4/3).
Value* exponent_near_one(const Vec& v, Value* bits) {
  return v.ir.CreateAShr(v.ir.CreateSub(bits, v.i32(0x3f2aaaab)), v.i32(23));
}

// `result` where 0 < u < inf; else the logarithm of 0, of a negative number, of inf or NaN. For the last two it returns x.
Value* with_log_specials(const Vec& v, Value* result, Value* u, Value* x) {
  auto& ir = v.ir;
  Value* special = ir.CreateSelect(ir.CreateFCmpOLT(u, v.f32(0)), v.f32(__builtin_nan("")), x);
  special = ir.CreateSelect(ir.CreateFCmpOEQ(u, v.f32(0)), v.f32(-kInf), special);
  Value* usual = ir.CreateAnd(ir.CreateFCmpOGT(u, v.f32(0)), ir.CreateFCmpOLT(u, v.f32(kInf)));
  return ir.CreateSelect(usual, result, special);
}

Value* emit_log(const Vec& v, Value* x) {
  auto& ir = v.ir;
  Value* tiny = ir.CreateFCmpOLT(x, v.f32(0x1p-126));
  Value* scaled = v.bits(ir.CreateSelect(tiny, ir.CreateFMul(x, v.f32(0x1p23)), x), DType::I32);
  Value* e = exponent_near_one(v, scaled);
  Value* m = v.bits(ir.CreateSub(scaled, ir.CreateShl(e, v.i32(23))), DType::F32);
  Value* e_all = ir.CreateAdd(e, ir.CreateSelect(tiny, v.i32(-23), v.i32(0)));
  Value* sum = log_sum(v, ir.CreateSIToFP(e_all, v.type(DType::F32)), ir.CreateFSub(m, v.f32(1)));
  return with_log_specials(v, sum, x, x);
}

// With 2^-e * (1 + x) near 1: f = 2^-e * x + (2^-e - 1), rounded once. The factor 4 keeps 2^-e normal.
Value* emit_log1p(const Vec& v, Value* x) {
  auto& ir = v.ir;
  Value* u = ir.CreateFAdd(x, v.f32(1));
  Value* e = exponent_near_one(v, v.bits(u, DType::I32));
  Value* s4 = v.bits(ir.CreateShl(ir.CreateSub(v.i32(129), e), v.i32(23)), DType::F32);
  Value* s_less_1 = v.fma(s4, v.f32(0.25), v.f32(-1));
  Value* f = v.fma(ir.CreateFMul(x, v.f32(0.25)), s4, s_less_1);
  Value* sum = log_sum(v, ir.CreateSIToFP(e, v.type(DType::F32)), f);
  Value* result = with_log_specials(v, sum, u, x);
  return ir.CreateSelect(ir.CreateFCmpOLT(v.abs(x), v.f32(0x1p-26)), x, result);
}

// With t = |x|: 1 - 2 / (e^2t + 1), which is 1 from t = 9.01 on.
Value* emit_tanh(const Vec& v, Value* x) {
  auto& ir = v.ir;
  Value* t = v.abs(x);
  Value* bounded = v.at_most(t, v.f32(10));
  Reduced reduced = reduce_exp_roughly(v, ir.CreateFAdd(bounded, bounded));
  Value* power = power_of_two(v, reduced.bits);
  Value* divisor = v.fma(short_expm1(v, reduced.r), power, ir.CreateFAdd(power, v.f32(1)));
  Value* large = ir.CreateFSub(v.f32(1), ir.CreateFDiv(v.f32(2), divisor));
  Value* z = ir.CreateFMul(x, x);
  Value* p = v.poly(z, {-0.005697384011000395, 0.0206325463950634, -0.05373779684305191, 0.13331420719623566, -0.3333328068256378});
  Value* small = v.fma(ir.CreateFMul(t, z), p, t);
  return v.with_sign(ir.CreateSelect(ir.CreateFCmpOLT(t, v.f32(0.625)), small, large), x);
}

// With e = e^-|x|, which never overflows, and w = e / (1 + e): 1 - w, or for negative x e - e * w, which is as accurate as e: the
// rounding of the sum and the quotient adds little.
Value* emit_logistic(const Vec& v, DType dtype, Value* x) {
  auto& ir = v.ir;
  Value* t = ir.CreateFNeg(v.abs(x));
  Value* e = dtype == DType::F32 ? exp_bounded(v, v.at_least(t, v.f32(-104))) : call_external(v, Prim::kExp, dtype, {t});
  Value* one = v.like(x, 1);
  Value* w = ir.CreateFDiv(e, ir.CreateFAdd(e, one));
  Value* limit = ir.CreateSelect(ir.CreateFCmpOLT(x, v.like(x, 0)), e, one);
  return v.fma(ir.CreateFNeg(limit), w, limit);
}

// With t = |x|: 1 - exp(-Q(t)), where e^-q - 1 is accurate for small q.
Value* emit_erf(const Vec& v, Value* x) {
  auto& ir = v.ir;
  Value* t = v.at_most(v.abs(x), v.f32(4.05));
  Value* q = v.poly(
      t,
      ir.CreateFMul(t, t),
      {-9.3881299108034e-06,
       0.000118862277304288,
       -0.0006373653886839747,
       0.0016756780678406358,
       -0.00016950475401245058,
       -0.019147822633385658,
       0.10277630388736725,
       0.6366195678710938,
       0.12837916612625122});
  Reduced reduced = reduce_exp_roughly(v, ir.CreateFNeg(v.fma(t, q, t)));
  Value* power = power_of_two(v, reduced.bits);
  return v.with_sign(v.fma(ir.CreateFNeg(short_expm1(v, reduced.r)), power, ir.CreateFSub(v.f32(1), power)), x);
}

// The normal distribution's tail over e^(-t^2 / 2), which falls from 0.5 to 0.4 / t, as a polynomial about the middle of each interval of
// t. The exponent and two more bits of t + 1 give the interval; their lowest bits are its index. Highest power first.
// clang-format off
constexpr float kTailCenters[16] = {
    1.216875f, 1.714375f, 2.2225f, 2.745625f, 3.42875f, 4.43875f, 5.43f, 6.42875f, 7.9025f, 9.925f, 11.855f, 13.64125f, 0.1203125f,
    0.3640625f, 0.6115625f, 0.87625f};
constexpr float kTail[][16] = {
    {0.0006219419f, 0.00023959203f, 0.000110349596f, 4.572127e-05f, 1.3878574e-05f, 3.917213e-06f, 1.2436305e-06f, 4.1167175e-07f,
     1.305307e-07f, 3.109596e-08f, 9.185936e-09f, 2.8207834e-09f, 0.005960429f, 0.001829972f, 0.0028498508f, 0.0010132936f},
    {-0.0021227924f, -0.0008850696f, -0.00039362424f, -0.000182457f, -7.477099e-05f, -2.3441993e-05f, -8.735096e-06f, -3.647456e-06f,
     -1.2322658e-06f, -3.4668588e-07f, -1.2575279e-07f, -5.54371e-08f, -0.020091232f, -0.011471522f, -0.00684474f, -0.0039945976f},
    {0.0064427494f, 0.0029760473f, 0.001458068f, 0.0007507325f, 0.00034578142f, 0.00012762495f, 5.521352e-05f, 2.6469814e-05f,
     1.0410998e-05f, 3.591355e-06f, 1.539538e-06f, 7.822383e-07f, 0.048589896f, 0.029744988f, 0.01848537f, 0.011477383f},
    {-0.018359708f, -0.009488337f, -0.0051886793f, -0.0029698429f, -0.0015538805f, -0.0006821829f, -0.00034309571f, -0.00018825824f,
     -8.822396e-05f, -3.7335347e-05f, -1.8859213e-05f, -1.093492e-05f, -0.10641695f, -0.06910757f, -0.04573056f, -0.030193837f},
    {0.04810561f, 0.02816914f, 0.017368942f, 0.011158536f, 0.0067095202f, 0.0035384449f, 0.0020837793f, 0.0013160126f, 0.0007388528f,
     0.00038493072f, 0.00022973384f, 0.00015228886f, 0.2069978f, 0.1439375f, 0.10198792f, 0.07233432f},
    {-0.11361937f, -0.076758325f, -0.05416906f, -0.039546728f, -0.027667178f, -0.017752916f, -0.012344224f, -0.009025093f,
     -0.00610351f, -0.003932455f, -0.0027800796f, -0.0021102184f, -0.34415174f, -0.2597146f, -0.199561f, -0.15396205f},
    {0.23447184f, 0.18793085f, 0.15512855f, 0.13089754f, 0.10828293f, 0.08587764f, 0.0711967f, 0.0606521f, 0.049710695f,
     0.039799478f, 0.03341731f, 0.029090595f, 0.4554019f, 0.38242793f, 0.32601947f, 0.279578f}};
// clang-format on

// x times the normal distribution's share below x: with t = |x|, max(x, 0) - t * tail(t), where 1 + erf(x / sqrt(2)) has lost most bits for
// negative x. t^2 is taken exactly; the first coefficient is multiplied last, and by t, so that rounding the
// other terms has little effect.
Value* emit_gelu(const Vec& v, Value* x) {
  auto& ir = v.ir;
  if (!v.isa.avx512) { // without tables in registers this takes half as long again
    return ir.CreateFMul(ir.CreateFMul(x, v.f32(0.5)), ir.CreateFAdd(emit_erf(v, ir.CreateFMul(x, v.f32(kSqrtHalf))), v.f32(1)));
  }
  Value* t = v.at_most(v.abs(x), v.f32(14.5));
  Value* half = ir.CreateFMul(t, v.f32(0.5));
  Value* square = ir.CreateFMul(t, half);
  Value* rest = v.fma(t, half, ir.CreateFNeg(square));
  Reduced reduced = reduce_exp(v, ir.CreateFNeg(square));
  Value* expm1 = short_expm1(v, ir.CreateFSub(reduced.r, rest));
  Value* interval = ir.CreateLShr(v.bits(ir.CreateFAdd(t, v.f32(1)), DType::I32), v.i32(21));
  Value* w = ir.CreateFSub(t, v.look_up(kTailCenters, interval));
  Value* sum = v.look_up(kTail[0], interval);
  for (size_t i = 1; i + 1 < std::size(kTail); ++i) {
    sum = v.fma(sum, w, v.look_up(kTail[i], interval));
  }
  Value* first = v.look_up(kTail[std::size(kTail) - 1], interval);
  Value* more = v.fma(expm1, v.fma(sum, w, first), ir.CreateFMul(sum, w));
  Value* below = scale_down(v, v.fma(t, first, ir.CreateFMul(t, more)), reduced);
  Value* result = ir.CreateFSub(v.at_least(x, v.f32(-0.0)), below);
  return ir.CreateSelect(ir.CreateFCmpOEQ(x, v.f32(-kInf)), v.f32(__builtin_nan("")), result); // -inf * 0
}

// erf(x) for |x| < 0.5: x + x * P(x^2).
Value* small_erf(const Vec& v, Value* x) {
  Value* p = v.poly(
      v.ir.CreateFMul(x, x),
      {-0.0005976615357212722, 0.004990418907254934, -0.0267647597938776, 0.1128176599740982, -0.37612488865852356, 0.12837915122509003});
  return v.fma(x, p, x);
}

// With t = |x| >= 0.5 and q = (t - 2) / (t + 2): erfc(t) = e^-t^2 * P(q) / (1 + 2 t), erfc(-t) = 2 - erfc(t). t^2 is taken exactly.
Value* emit_erfc(const Vec& v, Value* x) {
  auto& ir = v.ir;
  Value* t = v.at_most(v.abs(x), v.f32(10.1));
  Value* q = v.fma(ir.CreateFDiv(v.f32(1), ir.CreateFAdd(t, v.f32(2))), v.f32(-4), v.f32(1));
  Value* p = v.poly(
      q,
      {-0.0004005771188531071,
       -0.0012299279915168881,
       0.0013135226909071207,
       0.008631681092083454,
       -0.00805987510830164,
       -0.0542043000459671,
       0.16405534744262695,
       -0.16603142023086548,
       -0.0927639827132225,
       1.2769783735275269});
  Value* scaled = ir.CreateFDiv(p, v.fma(t, v.f32(2), v.f32(1)));
  Value* square = ir.CreateFMul(t, t);
  Value* rest = v.fma(t, t, ir.CreateFNeg(square));
  Value* e = exp_bounded(v, ir.CreateFNeg(square));
  Value* right = ir.CreateFMul(v.fma(ir.CreateFNeg(scaled), rest, scaled), e);
  Value* large = ir.CreateSelect(ir.CreateFCmpOLT(x, v.f32(0)), ir.CreateFSub(v.f32(2), right), right);
  return ir.CreateSelect(ir.CreateFCmpOLT(t, v.f32(0.5)), ir.CreateFSub(v.f32(1), small_erf(v, x)), large);
}

// e^|x| / 2, which overflows only where sinh and cosh do.
Value* half_exp(const Vec& v, Value* x) {
  Reduced reduced = reduce_exp(v, v.at_most(v.abs(x), v.f32(90)));
  Reduced halved{v.ir.CreateFSub(reduced.n, v.f32(1)), v.ir.CreateSub(reduced.bits, v.i32(1)), reduced.r};
  return scaled_exp(v, halved);
}

Value* emit_cosh(const Vec& v, Value* x) {
  Value* half = half_exp(v, x);
  return v.ir.CreateFAdd(half, v.ir.CreateFDiv(v.f32(0.25), half));
}

// |x| < 1: x + x^3 * P(x^2).
Value* emit_sinh(const Vec& v, Value* x) {
  auto& ir = v.ir;
  Value* half = half_exp(v, x);
  Value* large = v.copysign(ir.CreateFSub(half, ir.CreateFDiv(v.f32(0.25), half)), x);
  Value* z = ir.CreateFMul(x, x);
  Value* p = v.poly(z, {0.0002037740487139672, 0.008330211043357849, 0.166667178273201});
  Value* small = v.fma(ir.CreateFMul(x, z), p, x);
  return ir.CreateSelect(ir.CreateFCmpOLT(v.abs(x), v.f32(1)), small, large);
}

} // namespace

// x = n + f, |f| <= 1/2, exactly: e^(f * ln 2) * 2^n.
Value* emit_exp2(const Vec& v, Value* x) {
  x = v.at_least(v.at_most(x, v.f32(129)), v.f32(-151));
  Value* shifted = v.ir.CreateFAdd(x, v.f32(kRound));
  Value* n = v.ir.CreateFSub(shifted, v.f32(kRound));
  Value* r = v.ir.CreateFMul(v.ir.CreateFSub(x, n), v.f32(kLn2));
  return scaled_exp(v, {n, v.bits(shifted, DType::I32), r});
}

namespace {

Value* emit_float(const Vec& v, Prim prim, Value* x) {
  switch (prim) {
    case Prim::kExp:
      return emit_exp(v, x);
    case Prim::kExpm1:
      return emit_expm1(v, x);
    case Prim::kLog:
      return emit_log(v, x);
    case Prim::kLog1p:
      return emit_log1p(v, x);
    case Prim::kTanh:
      return emit_tanh(v, x);
    case Prim::kLogistic:
      return emit_logistic(v, DType::F32, x);
    case Prim::kErf:
      return emit_erf(v, x);
    case Prim::kErfc:
      return emit_erfc(v, x);
    case Prim::kGelu:
      return emit_gelu(v, x);
    case Prim::kSinh:
      return emit_sinh(v, x);
    case Prim::kCosh:
      return emit_cosh(v, x);
    case Prim::kSin:
      return emit_sin(v, x);
    case Prim::kCos:
      return emit_cos(v, x);
    case Prim::kTan:
      return emit_tan(v, x);
    case Prim::kAsin:
      return emit_asin(v, x);
    case Prim::kAcos:
      return emit_acos(v, x);
    case Prim::kAtan:
      return emit_atan(v, x);
    default:
      return call_external(v, prim, DType::F32, {x});
  }
}

Value* emit_double(const Vec& v, Prim prim, Value* x) {
  if (prim == Prim::kGelu) {
    Value* tail = call_external(v, Prim::kErfc, DType::F64, {v.ir.CreateFMul(x, v.like(x, -kSqrtHalf))});
    return v.ir.CreateFMul(v.ir.CreateFMul(x, v.like(x, 0.5)), tail);
  }
  return prim == Prim::kLogistic ? emit_logistic(v, DType::F64, x) : call_external(v, prim, DType::F64, {x});
}

} // namespace

Value* emit_math(const Vec& v, Prim prim, DType dtype, Value* x) {
  if (prim == Prim::kSqrt || prim == Prim::kRsqrt) {
    Value* root = v.ir.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
    return prim == Prim::kSqrt ? root : v.ir.CreateFDiv(v.like(x, 1), root);
  }
  XLA_ASSERT(dtype == DType::F32 || dtype == DType::F64, "code generation: ", prim_name(prim), " of ", dtype_name(dtype));
  return dtype == DType::F32 ? emit_float(v, prim, x) : emit_double(v, prim, x);
}

} // namespace torch_xla::cpu
