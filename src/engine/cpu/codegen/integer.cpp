// Integer and Bool arithmetic: division by zero gives 0, shifts by the width or more give 0 (or the sign), power is by repeated squaring.
#include "engine/cpu/codegen/integer.h"

#include "core/errors.h"
#include "engine/cpu/codegen/loops.h"

namespace torch_xla::cpu {

namespace {

using llvm::Intrinsic::smax;
using llvm::Intrinsic::smin;
using llvm::Intrinsic::umax;
using llvm::Intrinsic::umin;

// There is no vector instruction for integers; the quotient of doubles, truncated, is exact for up to 32 bits.
Value* divide_small(const Vec& v, DType t, Value* a, Value* b) {
  auto& ir = v.ir;
  bool is_unsigned = t == DType::U8;
  llvm::Type* f64 = v.type(DType::F64);
  Value* x = is_unsigned ? ir.CreateUIToFP(a, f64) : ir.CreateSIToFP(a, f64);
  Value* y = is_unsigned ? ir.CreateUIToFP(b, f64) : ir.CreateSIToFP(b, f64);
  return ir.CreateTrunc(ir.CreateFPToSI(ir.CreateFDiv(x, y), v.type(DType::I64)), v.type(t));
}

// b is not zero. A divisor -1 is replaced, as the most negative number divided by it would trap.
Value* divide_i64(const Vec& v, Value* a, Value* b) {
  auto& ir = v.ir;
  Value* minus_one = ir.CreateICmpEQ(b, v.integer(DType::I64, -1));
  Value* quotient = ir.CreateSDiv(a, ir.CreateSelect(minus_one, v.integer(DType::I64, 1), b));
  return ir.CreateSelect(minus_one, ir.CreateNeg(a), quotient);
}

Value* emit_div(const Vec& v, DType t, Value* a, Value* b) {
  auto& ir = v.ir;
  if (auto* c = find_splat<llvm::ConstantInt>(b); c && !c->getValue().isZero() && !c->getValue().isAllOnes()) {
    return t == DType::U8 ? ir.CreateUDiv(a, b) : ir.CreateSDiv(a, b);
  }
  Value* zero = v.integer(t, 0);
  Value* by_zero = ir.CreateICmpEQ(b, zero);
  Value* divisor = ir.CreateSelect(by_zero, v.integer(t, 1), b);
  Value* quotient = t == DType::I64 ? divide_i64(v, a, divisor) : divide_small(v, t, a, divisor);
  return ir.CreateSelect(by_zero, zero, quotient);
}

Value* emit_rem(const Vec& v, DType t, Value* a, Value* b) {
  Value* product = v.ir.CreateMul(emit_div(v, t, a, b), b);
  Value* by_zero = v.ir.CreateICmpEQ(b, v.integer(t, 0));
  return v.ir.CreateSelect(by_zero, v.integer(t, 0), v.ir.CreateSub(a, product));
}

Value* emit_shift(const Vec& v, Prim prim, DType t, Value* a, Value* count) {
  auto& ir = v.ir;
  int bits = static_cast<int>(v.lane_type(t)->getIntegerBitWidth());
  if (prim == Prim::kShrA && t != DType::U8) {
    return ir.CreateAShr(a, ir.CreateBinaryIntrinsic(umin, count, v.integer(t, bits - 1)));
  }
  Value* in_range = ir.CreateICmpULT(count, v.integer(t, bits));
  Value* zero = v.integer(t, 0);
  Value* amount = ir.CreateSelect(in_range, count, zero);
  Value* shifted = prim == Prim::kShl ? ir.CreateShl(a, amount) : ir.CreateLShr(a, amount);
  return ir.CreateSelect(in_range, shifted, zero);
}

// Only 1 and -1 have integer powers with a negative exponent; the others are rounded to 0.
Value* negative_power(const Vec& v, DType t, Value* base, Value* exponent) {
  auto& ir = v.ir;
  Value* one = v.integer(t, 1);
  Value* odd = ir.CreateICmpNE(ir.CreateAnd(exponent, one), v.integer(t, 0));
  Value* sign = ir.CreateSelect(odd, v.integer(t, -1), one);
  Value* other = ir.CreateSelect(ir.CreateICmpEQ(base, v.integer(t, -1)), sign, v.integer(t, 0));
  return ir.CreateSelect(ir.CreateICmpEQ(base, one), one, other);
}

// How many of the low bits have a one in some lane, as i64.
Value* active_bits(const Vec& v, Value* x) {
  auto& ir = v.ir;
  if (auto* known = find_splat<llvm::ConstantInt>(x)) {
    return ir.getInt64(known->getValue().getActiveBits());
  }
  Value* all = v.width == 1 ? x : ir.CreateOrReduce(x);
  Value* zeros = ir.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, all, ir.getFalse());
  return ir.CreateZExt(ir.CreateSub(llvm::ConstantInt::get(all->getType(), all->getType()->getIntegerBitWidth()), zeros), ir.getInt64Ty());
}

Value* natural_power(const Vec& v, DType t, Value* base, Value* exponent) {
  auto& ir = v.ir;
  Value* one = v.integer(t, 1);
  auto square_and_multiply = [&](Value*, llvm::ArrayRef<Value*> c) {
    Value* odd = ir.CreateICmpNE(ir.CreateAnd(c[2], one), v.integer(t, 0));
    Value* product = ir.CreateSelect(odd, ir.CreateMul(c[0], c[1]), c[0]);
    return Carried{product, ir.CreateMul(c[1], c[1]), ir.CreateLShr(c[2], one)};
  };
  return emit_loop(ir, ir.getInt64(0), active_bits(v, exponent), 1, {one, base, exponent}, square_and_multiply)[0];
}

Value* emit_pow(const Vec& v, DType t, Value* base, Value* exponent) {
  if (t == DType::U8) {
    return natural_power(v, t, base, exponent);
  }
  Value* zero = v.integer(t, 0);
  Value* negative = v.ir.CreateICmpSLT(exponent, zero);
  Value* power = natural_power(v, t, base, v.ir.CreateSelect(negative, zero, exponent));
  return v.ir.CreateSelect(negative, negative_power(v, t, base, exponent), power);
}

Value* emit_sign(const Vec& v, DType t, Value* x) {
  Value* zero = v.integer(t, 0);
  Value* positive = v.ir.CreateZExt(t == DType::U8 ? v.ir.CreateICmpNE(x, zero) : v.ir.CreateICmpSGT(x, zero), v.type(t));
  return t == DType::U8 ? positive : v.ir.CreateOr(positive, v.ir.CreateAShr(x, v.integer(t, v.lane_type(t)->getIntegerBitWidth() - 1)));
}

} // namespace

Value* emit_integer_unary(const Vec& v, Prim prim, DType t, Value* x) {
  auto& ir = v.ir;
  bool is_unsigned = t == DType::U8 || t == DType::Bool;
  switch (prim) {
    case Prim::kNot:
      return ir.CreateNot(x);
    case Prim::kNeg:
      return ir.CreateNeg(x);
    case Prim::kAbs:
      return is_unsigned ? x : ir.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, ir.getFalse());
    case Prim::kSign:
      return t == DType::Bool ? x : emit_sign(v, t, x);
    case Prim::kCeil:
    case Prim::kFloor:
    case Prim::kRoundEven:
    case Prim::kTrunc:
      return x;
    default:
      throw InternalError(str("code generation: ", prim_name(prim), " of integers"));
  }
}

Value* emit_integer_binary(const Vec& v, Prim prim, DType t, Value* a, Value* b) {
  auto& ir = v.ir;
  bool is_unsigned = t == DType::U8;
  switch (prim) {
    case Prim::kAdd:
      return ir.CreateAdd(a, b);
    case Prim::kSub:
      return ir.CreateSub(a, b);
    case Prim::kMul:
      return ir.CreateMul(a, b);
    case Prim::kDiv:
      return emit_div(v, t, a, b);
    case Prim::kRem:
      return emit_rem(v, t, a, b);
    case Prim::kPow:
      return emit_pow(v, t, a, b);
    case Prim::kMax:
      return ir.CreateBinaryIntrinsic(is_unsigned ? umax : smax, a, b);
    case Prim::kMin:
      return ir.CreateBinaryIntrinsic(is_unsigned ? umin : smin, a, b);
    case Prim::kAnd:
      return ir.CreateAnd(a, b);
    case Prim::kOr:
      return ir.CreateOr(a, b);
    case Prim::kXor:
      return ir.CreateXor(a, b);
    case Prim::kShl:
    case Prim::kShrA:
    case Prim::kShrL:
      return emit_shift(v, prim, t, a, b);
    default:
      throw InternalError(str("code generation: ", prim_name(prim), " of integers"));
  }
}

// Bool arithmetic is that of PyTorch: the sum is `or`, the product `and`.
Value* emit_bool_binary(const Vec& v, Prim prim, Value* a, Value* b) {
  switch (prim) {
    case Prim::kAdd:
    case Prim::kMax:
    case Prim::kOr:
      return v.ir.CreateOr(a, b);
    case Prim::kMul:
    case Prim::kMin:
    case Prim::kAnd:
      return v.ir.CreateAnd(a, b);
    case Prim::kXor:
      return v.ir.CreateXor(a, b);
    default:
      throw InternalError(str("code generation: ", prim_name(prim), " of bools"));
  }
}

} // namespace torch_xla::cpu
