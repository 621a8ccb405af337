// Dispatch of primitives by element type; floating-point arithmetic, comparisons and reductions.
#include "engine/cpu/codegen/primitive.h"

#include "core/errors.h"
#include "engine/cpu/codegen/convert.h"
#include "engine/cpu/codegen/external.h"
#include "engine/cpu/codegen/integer.h"
#include "engine/cpu/codegen/math.h"

namespace torch_xla::cpu {

namespace {

using llvm::CmpInst;

constexpr double kInf = __builtin_inf();

Value* emit_compare(const Vec& v, Prim prim, DType t, Value* a, Value* b) {
  struct Row {
    CmpInst::Predicate real, with_sign, without;
  };
  static constexpr Row rows[] = {
      {CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ},
      {CmpInst::FCMP_UNE, CmpInst::ICMP_NE, CmpInst::ICMP_NE},
      {CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT},
      {CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE},
      {CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT},
      {CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE},
  };
  const Row& row = rows[static_cast<int>(prim) - static_cast<int>(Prim::kEq)];
  if (is_float(t)) {
    return v.ir.CreateFCmp(row.real, a, b);
  }
  return v.ir.CreateICmp(t == DType::U8 || t == DType::Bool ? row.without : row.with_sign, a, b);
}

// NaN if either is: maxps returns its second operand then, which is NaN unless only the first one was. The fence keeps LLVM from making
// two comparisons of it.
Value* emit_extremum(const Vec& v, Prim prim, Value* a, Value* b) {
  auto& ir = v.ir;
  Value* first = prim == Prim::kMax ? ir.CreateFCmpOGT(a, b) : ir.CreateFCmpOLT(a, b);
  return ir.CreateSelect(ir.CreateFCmpUNO(a, a), a, v.fenced(ir.CreateSelect(first, a, b)));
}

// The exponents that ATen treats apart, by the same formulas; null for others.
Value* find_simple_power(const Vec& v, DType t, Value* x, double exponent) {
  auto& ir = v.ir;
  Value* one = v.like(x, 1);
  Value* square = ir.CreateFMul(x, x);
  if (exponent == 2) {
    return square;
  }
  if (exponent == 3) {
    return ir.CreateFMul(square, x);
  }
  if (exponent == -2) {
    return ir.CreateFDiv(one, square);
  }
  if (exponent == 0.5) {
    return emit_math(v, Prim::kSqrt, t, x);
  }
  if (exponent == -0.5) {
    return emit_math(v, Prim::kRsqrt, t, x);
  }
  return exponent == -1 ? ir.CreateFDiv(one, x) : nullptr;
}

Value* emit_power(const Vec& v, DType t, Value* x, Value* exponent) {
  auto* known = find_splat<llvm::ConstantFP>(exponent);
  const llvm::APFloat* number = known ? &known->getValueAPF() : nullptr;
  auto* base = find_splat<llvm::ConstantFP>(x);
  if (base && base->isExactlyValue(2.0) && t == DType::F32) {
    return emit_exp2(v, exponent);
  }
  Value* simple = number ? find_simple_power(v, t, x, t == DType::F64 ? number->convertToDouble() : number->convertToFloat()) : nullptr;
  return simple ? simple : call_external(v, Prim::kPow, t, {x, exponent});
}

Value* emit_float_binary(const Vec& v, Prim prim, DType t, Value* a, Value* b) {
  auto& ir = v.ir;
  switch (prim) {
    case Prim::kAdd:
      return ir.CreateFAdd(a, b);
    case Prim::kSub:
      return ir.CreateFSub(a, b);
    case Prim::kMul:
      return ir.CreateFMul(a, b);
    case Prim::kDiv:
      return ir.CreateFDiv(a, b);
    case Prim::kMax:
    case Prim::kMin:
      return emit_extremum(v, prim, a, b);
    case Prim::kPow:
      return emit_power(v, t, a, b);
    case Prim::kRem:
    case Prim::kAtan2:
      return call_external(v, prim, t, {a, b});
    default:
      throw InternalError(str("code generation: ", prim_name(prim), " of floating-point numbers"));
  }
}

// torch.sign: NaN gives 0.
Value* emit_float_sign(const Vec& v, Value* x) {
  Value* zero = v.like(x, 0);
  Value* negative = v.ir.CreateSelect(v.ir.CreateFCmpOLT(x, zero), v.like(x, -1), zero);
  return v.ir.CreateSelect(v.ir.CreateFCmpOGT(x, zero), v.like(x, 1), negative);
}

Value* emit_float_unary(const Vec& v, Prim prim, DType t, Value* x) {
  using namespace llvm;
  switch (prim) {
    case Prim::kNeg:
      return v.ir.CreateFNeg(x);
    case Prim::kAbs:
      return v.abs(x);
    case Prim::kSign:
      return emit_float_sign(v, x);
    case Prim::kCeil:
      return v.ir.CreateUnaryIntrinsic(Intrinsic::ceil, x);
    case Prim::kFloor:
      return v.ir.CreateUnaryIntrinsic(Intrinsic::floor, x);
    case Prim::kRoundEven:
      return v.ir.CreateUnaryIntrinsic(Intrinsic::roundeven, x);
    case Prim::kTrunc:
      return v.ir.CreateUnaryIntrinsic(Intrinsic::trunc, x);
    case Prim::kIsFinite:
      return v.ir.CreateFCmpOLT(v.abs(x), v.like(x, kInf));
    case Prim::kIsNan:
      return v.ir.CreateFCmpUNO(x, x);
    default:
      return emit_math(v, prim, t, x);
  }
}

Value* emit_unary(const Vec& v, Prim prim, DType t, Value* x) {
  if (is_float(t)) {
    return emit_float_unary(v, prim, t, x);
  }
  if (gives_bool(prim)) {
    return v.integer(DType::Bool, prim == Prim::kIsFinite);
  }
  return emit_integer_unary(v, prim, t, x);
}

Value* emit_binary(const Vec& v, Prim prim, DType t, Value* a, Value* b) {
  if (is_compare(prim)) {
    return emit_compare(v, prim, t, a, b);
  }
  if (t == DType::Bool) {
    return emit_bool_binary(v, prim, a, b);
  }
  return is_float(t) ? emit_float_binary(v, prim, t, a, b) : emit_integer_binary(v, prim, t, a, b);
}

Prim combining_prim(Prim reduce) {
  switch (reduce) {
    case Prim::kReduceSum:
      return Prim::kAdd;
    case Prim::kReduceProd:
      return Prim::kMul;
    case Prim::kReduceMax:
      return Prim::kMax;
    case Prim::kReduceMin:
      return Prim::kMin;
    case Prim::kReduceAnd:
      return Prim::kAnd;
    default:
      return Prim::kOr;
  }
}

Value* lowest(const Vec& v, DType t) {
  if (is_float(t)) {
    return v.number(t, -kInf);
  }
  bool is_unsigned = t == DType::U8 || t == DType::Bool;
  return v.integer(t, is_unsigned ? 0 : int64_t{-1} << (8 * item_size(t) - 1));
}

Value* highest(const Vec& v, DType t) {
  return is_float(t) ? v.number(t, kInf) : v.ir.CreateNot(lowest(v, t));
}

} // namespace

Value* emit_primitive(const Vec& v, Prim prim, DType type, DType result, llvm::ArrayRef<Value*> args) {
  if (prim == Prim::kConvert) {
    return emit_convert(v, type, result, args[0]);
  }
  if (prim == Prim::kSelect) {
    return v.ir.CreateSelect(args[0], args[1], args[2]);
  }
  XLA_ASSERT(is_unary(prim) || is_binary(prim), "code generation: unexpected primitive ", prim_name(prim));
  return is_unary(prim) ? emit_unary(v, prim, type, args[0]) : emit_binary(v, prim, type, args[0], args[1]);
}

Value* neutral(const Vec& v, Prim reduce, DType t) {
  switch (reduce) {
    case Prim::kReduceProd:
      return v.number(t, 1);
    case Prim::kReduceMax:
      return lowest(v, t);
    case Prim::kReduceMin:
      return highest(v, t);
    case Prim::kReduceAnd:
      return v.integer(t, -1);
    default:
      return v.number(t, 0);
  }
}

Value* combine(const Vec& v, Prim reduce, DType t, Value* a, Value* b) {
  return emit_binary(v, combining_prim(reduce), t, a, b);
}

Value* combine_lanes(const Vec& v, Prim reduce, DType t, Value* x) {
  if (v.width == 1) {
    return x;
  }
  Vec half(v.ir, v.isa, v.width / 2);
  llvm::SmallVector<int, 8> low, high;
  for (int i = 0; i < half.width; ++i) {
    low.push_back(i);
    high.push_back(i + half.width);
  }
  Value* a = v.ir.CreateShuffleVector(x, low);
  Value* b = v.ir.CreateShuffleVector(x, high);
  if (half.width == 1) {
    a = v.ir.CreateExtractElement(a, uint64_t{0});
    b = v.ir.CreateExtractElement(b, uint64_t{0});
  }
  return combine_lanes(half, reduce, t, combine(half, reduce, t, a, b));
}

} // namespace torch_xla::cpu
