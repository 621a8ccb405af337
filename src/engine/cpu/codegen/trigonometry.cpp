// Our own minimax fits; a result near a binade's end is kept below 1.5 ulp by carrying the rounding error of its largest term.
#include "engine/cpu/codegen/trigonometry.h"

#include "engine/cpu/codegen/external.h"
#include "engine/cpu/codegen/loops.h"
#include "engine/cpu/codegen/math.h"

namespace torch_xla::cpu {

namespace {

// A number as the sum of floats.
constexpr double kPiHi = 3.1415927410125732, kPiLo = -8.742277657347586e-08, kPiRest = -3.4302490200117637e-15;
constexpr double kTwoByPi = 0.6366197723675814;
constexpr double kLargest = 131072; // up to which pi / 2 in three floats is exact enough

// |x| = n * pi / 2 + r + low, with |r| a little more than pi / 4 at most and low small beside it. |x| <= kLargest.
struct Quadrant {
  Value* bits; // I32, whose low bits are those of n
  Value* r;
  Value* low;
  Value* square; // of r
};

// The first difference is exact, as it has no bits below those of pi's first float and of x. `low` has the rounding error of the second.
Quadrant find_quadrant(const Vec& v, Value* x) {
  auto& ir = v.ir;
  Value* t = v.abs(x);
  Value* shifted = v.fma(t, v.f32(kTwoByPi), v.f32(kRound));
  Value* n = ir.CreateFSub(shifted, v.f32(kRound));
  Value* first = v.fma(n, v.f32(-kPiHi / 2), t);
  Value* second = ir.CreateFMul(n, v.f32(kPiLo / 2));
  Value* r = ir.CreateFSub(first, second);
  Value* of_product = v.fma(n, v.f32(kPiLo / 2), ir.CreateFNeg(second));
  Value* of_difference = ir.CreateFSub(ir.CreateFSub(first, r), second);
  Value* low = v.fma(n, v.f32(-kPiRest / 2), ir.CreateFSub(of_difference, of_product));
  return {v.bits(shifted, DType::I32), r, low, ir.CreateFMul(r, r)};
}

Value* with_flipped_sign(const Vec& v, Value* x, Value* bits) {
  Value* sign = v.ir.CreateAnd(bits, v.i32(INT32_MIN));
  return v.bits(v.ir.CreateXor(v.bits(x, DType::I32), sign), DType::F32);
}

Value* is_odd(const Vec& v, Value* bits) {
  return v.ir.CreateICmpNE(v.ir.CreateAnd(bits, v.i32(1)), v.i32(0));
}

// The sine in quadrant n of `bits`, for positive x.
Value* emit_wave(const Vec& v, const Quadrant& q, Value* bits) {
  auto& ir = v.ir;
  Value* s = v.poly(q.square, {-0.00019508233526721597, 0.00833210814744234, -0.16666653752326965});
  Value* sine = ir.CreateFAdd(q.r, v.fma(ir.CreateFMul(q.r, q.square), s, q.low));
  Value* c = v.poly(q.square, {2.443008816044312e-05, -0.0013887297827750444, 0.04166664555668831, -0.5});
  Value* cosine = v.fma(q.square, c, v.f32(1));
  return with_flipped_sign(v, ir.CreateSelect(is_odd(v, bits), cosine, sine), ir.CreateShl(bits, v.i32(30)));
}

// Large elements of the vector by another library, with more digits of pi.
Value* with_large(const Vec& v, Prim prim, Value* x, Value* result) {
  auto& ir = v.ir;
  Value* large = ir.CreateFCmpOGT(v.abs(x), v.f32(kLargest));
  Value* any = v.width == 1 ? large : ir.CreateOrReduce(large);
  return emit_loop(ir, ir.getInt64(0), ir.CreateZExt(any, ir.getInt64Ty()), 1, {result}, [&](Value*, llvm::ArrayRef<Value*> c) {
    return Carried{ir.CreateSelect(large, call_external(v, prim, DType::F32, {x}), c[0])};
  })[0];
}

// start + factor * (s + s^3 * p), start being a multiple of pi and factor -2, -1, 1 or 2.
struct Angle {
  Value* start_hi;
  Value* start_lo;
  Value* factor;
};

Angle angle(const Vec& v, double of_pi, double factor) {
  return {v.f32(kPiHi * of_pi), v.f32(kPiLo * of_pi), v.f32(factor)};
}

Angle choose(const Vec& v, Value* condition, const Angle& a, const Angle& b) {
  auto select = [&](Value* x, Value* y) { return v.ir.CreateSelect(condition, x, y); };
  return {select(a.start_hi, b.start_hi), select(a.start_lo, b.start_lo), select(a.factor, b.factor)};
}

Value* sum_angle(const Vec& v, const Angle& a, Value* s, Value* square, Value* p) {
  auto& ir = v.ir;
  Value* sum = v.fma(s, a.factor, a.start_hi);
  Value* low = v.fma(s, a.factor, ir.CreateFSub(a.start_hi, sum));
  Value* rest = ir.CreateFMul(ir.CreateFMul(s, square), p);
  return ir.CreateFAdd(sum, v.fma(rest, a.factor, ir.CreateFAdd(low, a.start_lo)));
}

// The arc sine of s: s is `small` (t or -t) for t <= 1/2, else sqrt((1 - t) / 2), where acos t is twice the arc sine.
Value* sum_arc(const Vec& v, Value* t, Value* small, Value* is_large, const Angle& a) {
  auto& ir = v.ir;
  Value* square = ir.CreateSelect(is_large, v.fma(t, v.f32(-0.5), v.f32(0.5)), ir.CreateFMul(t, t));
  Value* root = ir.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, square);
  Value* p = v.poly(
      square,
      ir.CreateFMul(square, square),
      {0.042158305644989014, 0.024184778332710266, 0.04546914994716644, 0.074953094124794, 0.16666752099990845});
  return sum_angle(v, a, ir.CreateSelect(is_large, root, small), square, p);
}

} // namespace

Value* emit_sin(const Vec& v, Value* x) {
  Quadrant q = find_quadrant(v, x);
  return with_large(v, Prim::kSin, x, with_flipped_sign(v, emit_wave(v, q, q.bits), v.bits(x, DType::I32)));
}

Value* emit_cos(const Vec& v, Value* x) {
  Quadrant q = find_quadrant(v, x);
  return with_large(v, Prim::kCos, x, emit_wave(v, q, v.ir.CreateAdd(q.bits, v.i32(1))));
}

// In odd quadrants -1 / tan(r), by one step of Newton's method, as the quotient of a rounded tangent has two errors.
Value* emit_tan(const Vec& v, Value* x) {
  auto& ir = v.ir;
  Quadrant q = find_quadrant(v, x);
  Value* p = v.poly(
      q.square,
      ir.CreateFMul(q.square, q.square),
      {0.004481462761759758,
       -0.00011859156802529469,
       0.010995431803166866,
       0.021222641691565514,
       0.05407097563147545,
       0.1333257108926773,
       0.3333335220813751});
  Value* slope = v.fma(q.square, v.f32(1.6), v.f32(1));
  Value* rest = v.fma(ir.CreateFMul(q.r, q.square), p, ir.CreateFMul(q.low, slope));
  Value* even = ir.CreateFAdd(q.r, rest);
  Value* even_low = ir.CreateFAdd(ir.CreateFSub(q.r, even), rest);
  Value* quotient = ir.CreateFDiv(v.f32(-1), even);
  Value* error = v.fma(quotient, even_low, v.fma(quotient, even, v.f32(1)));
  Value* odd = v.fma(quotient, error, quotient);
  Value* result = with_flipped_sign(v, ir.CreateSelect(is_odd(v, q.bits), odd, even), v.bits(x, DType::I32));
  return with_large(v, Prim::kTan, x, result);
}

Value* emit_asin(const Vec& v, Value* x) {
  Value* t = v.abs(x);
  Value* large = v.ir.CreateFCmpOGT(t, v.f32(0.5));
  return v.with_sign(sum_arc(v, t, t, large, choose(v, large, angle(v, 0.5, -2), angle(v, 0, 1))), x);
}

Value* emit_acos(const Vec& v, Value* x) {
  Value* t = v.abs(x);
  Value* large = v.ir.CreateFCmpOGT(t, v.f32(0.5));
  Angle of_large = choose(v, v.ir.CreateFCmpOLT(x, v.f32(0)), angle(v, 1, -2), angle(v, 0, 2));
  return sum_arc(v, t, x, large, choose(v, large, of_large, angle(v, 0.5, -1)));
}

Value* emit_atan(const Vec& v, Value* x) {
  auto& ir = v.ir;
  Value* t = v.abs(x);
  Value* large = ir.CreateFCmpOGT(t, v.f32(1));
  Value* s = ir.CreateSelect(large, ir.CreateFDiv(v.f32(1), t), t);
  Value* square = ir.CreateFMul(s, s);
  Value* p = v.poly(
      square,
      ir.CreateFMul(square, square),
      {-0.0017875476041808724,
       0.010887361131608486,
       -0.031127002090215683,
       0.05790654569864273,
       -0.08400475233793259,
       0.10951174795627594,
       -0.14264051616191864,
       0.1999853104352951,
       -0.33333298563957214});
  return v.with_sign(sum_angle(v, choose(v, large, angle(v, 0.5, -1), angle(v, 0, 1)), s, square, p), x);
}

} // namespace torch_xla::cpu
