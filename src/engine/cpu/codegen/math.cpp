// Functions by polynomials, our own minimax fits with relative errors below 0.3 ulp; tests/cpp/math_test.cpp holds the functions' bounds.
#include "engine/cpu/codegen/math.h"

#include <llvm/IR/IntrinsicsX86.h>

#include "core/errors.h"
#include "engine/cpu/codegen/external.h"
#include "engine/cpu/codegen/trigonometry.h"

namespace torch_xla::cpu {

namespace {

constexpr double kLn2 = 0.693147180559945309;
constexpr double kLn2Hi = 0.693145751953125; // 16 significant bits: n * kLn2Hi is exact
constexpr double kLn2Lo = 1.42860682030941723e-6;
constexpr double kLog2E = 1.44269504088896340736;
constexpr double kInf = __builtin_inf();

// x = n * ln 2 + r, |r| <= ln 2 / 2.
struct Reduced {
  Value* n; // float
  Value* bits; // I32, whose low 9 bits are those of n
  Value* r;
};

Reduced with_integer_part(const Vec& v, Value* x, llvm::function_ref<Value*(Value* n)> rest) {
  Value* shifted = v.fma(x, v.f32(kLog2E), v.f32(kRound));
  Value* n = v.ir.CreateFSub(shifted, v.f32(kRound));
  return {n, v.bits(shifted, DType::I32), rest(n)};
}

Reduced reduce_exp(const Vec& v, Value* x) {
  return with_integer_part(v, x, [&](Value* n) { return v.fma(n, v.f32(-kLn2Lo), v.fma(n, v.f32(-kLn2Hi), x)); });
}

// Where an error of 2e-9 * n in r does no harm.
Reduced reduce_exp_roughly(const Vec& v, Value* x) {
  return with_integer_part(v, x, [&](Value* n) { return v.fma(n, v.f32(-kLn2), x); });
}

// 2^(n + more) if that is in [-126, 127]; the low 9 bits are those of n.
Value* power_of_two(const Vec& v, Value* bits, int64_t more = 0) {
  return v.bits(v.ir.CreateAdd(v.ir.CreateShl(bits, v.i32(23)), v.i32((127 + more) << 23)), DType::F32);
}

// e^r - 1
Value* short_expm1(const Vec& v, Value* r) {
  Value* square = v.ir.CreateFMul(r, r);
  Value* tail =
      v.poly(r, square, {0.001381446490995586, 0.008368780836462975, 0.04166839271783829, 0.1666651964187622, 0.4999999403953552});
  return v.fma(square, tail, r);
}

// 2^n * x.
Value* scale(const Vec& v, Value* x, Value* n, Value* bits) {
  if (v.isa.avx512 && v.width == 16) {
    Value* args[] = {x, n, x, v.ir.getInt16(0xffff), v.ir.getInt32(4 /* current rounding mode */)};
    return v.ir.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {}, args);
  }
  Value* half = v.ir.CreateFMul(x, power_of_two(v, bits, -1)); // 2^128 is no float
  return v.ir.CreateFAdd(half, half);
}

// e^x, also where that is subnormal or overflows. What is subnormal is an integer, in whose bits it is: arithmetic whose result is
// subnormal, or rounded to zero, takes Intel's processors 150 cycles, which masked scores are full of.
Value* scaled_exp(const Vec& v, const Reduced& x) {
  auto& ir = v.ir;
  constexpr int64_t kUnit = 149; // 2^-149 is the least float
  Value* tiny = ir.CreateFCmpOLT(x.n, v.f32(-125));
  Value* n = ir.CreateSelect(tiny, ir.CreateFAdd(x.n, v.f32(kUnit)), x.n);
  Value* bits = ir.CreateSelect(tiny, ir.CreateAdd(x.bits, v.i32(kUnit)), x.bits);
  Value* y = scale(v, ir.CreateFAdd(short_expm1(v, x.r), v.f32(1)), n, bits);
  Value* whole = ir.CreateFPToSI(ir.CreateFAdd(y, v.f32(0.5)), v.i32());
  return ir.CreateSelect(tiny, v.bits(whole, DType::F32), y);
}

// e^x for x that is NaN or in [-104, 89].
Value* exp_bounded(const Vec& v, Value* x) {
  return scaled_exp(v, reduce_exp(v, x));
}

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

// `result` where 0 < u < inf; else the logarithm of 0, of a negative number, of inf or NaN. x is what is returned for the last two.
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

// With e = e^-|x|, which never overflows, and w = e / (1 + e): 1 - w, or for negative x e - e * w, which is as accurate as e is: what the
// sum and the quotient have lost counts for little beside it.
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
