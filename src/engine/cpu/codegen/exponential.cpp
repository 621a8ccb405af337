// e^x by a polynomial of the remainder of x after a multiple of ln 2.
#include "engine/cpu/codegen/exponential.h"

#include <llvm/IR/IntrinsicsX86.h>

#include "engine/cpu/codegen/math.h"

namespace torch_xla::cpu {

namespace {

constexpr double kLog2E = 1.44269504088896340736;

Reduced with_integer_part(const Vec& v, Value* x, llvm::function_ref<Value*(Value* n)> rest) {
  Value* shifted = v.fma(x, v.f32(kLog2E), v.f32(kRound));
  Value* n = v.ir.CreateFSub(shifted, v.f32(kRound));
  return {n, v.bits(shifted, DType::I32), rest(n)};
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

} // namespace

Reduced reduce_exp(const Vec& v, Value* x) {
  return with_integer_part(v, x, [&](Value* n) { return v.fma(n, v.f32(-kLn2Lo), v.fma(n, v.f32(-kLn2Hi), x)); });
}

Reduced reduce_exp_roughly(const Vec& v, Value* x) {
  return with_integer_part(v, x, [&](Value* n) { return v.fma(n, v.f32(-kLn2), x); });
}

Value* power_of_two(const Vec& v, Value* bits, int64_t more) {
  return v.bits(v.ir.CreateAdd(v.ir.CreateShl(bits, v.i32(23)), v.i32((127 + more) << 23)), DType::F32);
}

Value* short_expm1(const Vec& v, Value* r) {
  Value* square = v.ir.CreateFMul(r, r);
  Value* tail =
      v.poly(r, square, {0.001381446490995586, 0.008368780836462975, 0.04166839271783829, 0.1666651964187622, 0.4999999403953552});
  return v.fma(square, tail, r);
}

Value* scale_down(const Vec& v, Value* x, const Reduced& reduced) {
  auto& ir = v.ir;
  if (v.isa.avx512 && v.width == 16) {
    return scale(v, x, reduced.n, reduced.bits);
  }
  Value* n = ir.CreateAShr(ir.CreateShl(reduced.bits, v.i32(23)), v.i32(23));
  Value* part = ir.CreateAShr(n, v.i32(1));
  return ir.CreateFMul(ir.CreateFMul(x, power_of_two(v, part)), power_of_two(v, ir.CreateSub(n, part)));
}

// Subnormal results are made as integers with their bits: arithmetic with a subnormal result, or one rounded to zero, takes Intel's
// processors 150 cycles, and masked scores are full of these.
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

Value* exp_bounded(const Vec& v, Value* x) {
  return scaled_exp(v, reduce_exp(v, x));
}

} // namespace torch_xla::cpu
