// Types, constants and small operations of one vector width.
#include "engine/cpu/codegen/vec.h"

#include <numeric>

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "core/errors.h"

namespace torch_xla::cpu {

using llvm::ConstantFP;
using llvm::ConstantInt;

llvm::Type* Vec::lane_type(DType t) const {
  switch (t) {
    case DType::Bool:
      return ir.getInt1Ty();
    case DType::U8:
    case DType::I8:
      return ir.getInt8Ty();
    case DType::I16:
      return ir.getInt16Ty();
    case DType::I32:
      return ir.getInt32Ty();
    case DType::I64:
      return ir.getInt64Ty();
    case DType::C128: // copied as a word
      return ir.getInt128Ty();
    case DType::F16:
    case DType::BF16:
    case DType::F32:
      return ir.getFloatTy();
    case DType::F64:
      return ir.getDoubleTy();
    default:
      throw InternalError(str("code generation: no registers for dtype ", static_cast<int>(t)));
  }
}

llvm::Type* Vec::widen(llvm::Type* lane) const {
  return width == 1 ? lane : llvm::FixedVectorType::get(lane, width);
}

llvm::Type* Vec::type(DType t) const {
  return widen(lane_type(t));
}

Value* Vec::f32(double v) const {
  return ConstantFP::get(type(DType::F32), v);
}

Value* Vec::i32(int64_t v) const {
  return integer(DType::I32, v);
}

Value* Vec::number(DType t, double v) const {
  return is_float(t) ? ConstantFP::get(type(t), v) : integer(t, static_cast<int64_t>(v));
}

Value* Vec::integer(DType t, int64_t v) const {
  llvm::APInt wide(64, static_cast<uint64_t>(v));
  return ConstantInt::get(type(t), wide.trunc(lane_type(t)->getIntegerBitWidth()));
}

Value* Vec::like(Value* x, double v) const {
  return ConstantFP::get(x->getType(), v);
}

Value* Vec::splat(Value* x) const {
  return width == 1 || x->getType()->isVectorTy() ? x : ir.CreateVectorSplat(width, x);
}

Value* Vec::ramp(DType t, int64_t step) const {
  if (width == 1) {
    return integer(t, 0);
  }
  llvm::SmallVector<llvm::Constant*, 16> lanes;
  for (int i = 0; i < width; ++i) {
    lanes.push_back(ConstantInt::getSigned(lane_type(t), i * step));
  }
  return llvm::ConstantVector::get(lanes);
}

Value* Vec::ramp(Value* step) const {
  return width == 1 ? integer(DType::I64, 0) : ir.CreateMul(ramp(DType::I64, 1), splat(step));
}

Value* Vec::first_lanes(Value* count) const {
  Value* limited = ir.CreateBinaryIntrinsic(llvm::Intrinsic::umin, count, ir.getInt64(width));
  return ir.CreateICmpULT(ramp(DType::I32, 1), splat(ir.CreateTrunc(limited, ir.getInt32Ty())));
}

Value* Vec::fma(Value* a, Value* b, Value* c) const {
  return ir.CreateIntrinsic(a->getType(), llvm::Intrinsic::fma, {a, b, c});
}

Value* Vec::fenced(Value* x) const {
  return ir.CreateArithmeticFence(x, x->getType());
}

// LLVM 19's instcombine looks through fabs when it joins the conditions of two selects, and confuses |x| > 0 with x > 0.
Value* Vec::abs(Value* x) const {
  return fenced(ir.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x));
}

Value* Vec::copysign(Value* magnitude, Value* sign) const {
  return ir.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign);
}

Value* Vec::with_sign(Value* magnitude, Value* sign) const {
  Value* bit = ir.CreateAnd(bits(sign, DType::I32), integer(DType::I32, INT32_MIN));
  return bits(ir.CreateOr(bits(magnitude, DType::I32), bit), DType::F32);
}

// The order of the operands follows minps and maxps: these return the second one if either is NaN.
Value* Vec::at_most(Value* x, Value* bound) const {
  return ir.CreateSelect(ir.CreateFCmpOLT(bound, x), bound, x);
}

Value* Vec::at_least(Value* x, Value* bound) const {
  return ir.CreateSelect(ir.CreateFCmpOGT(bound, x), bound, x);
}

Value* Vec::poly(Value* x, std::initializer_list<double> coefficients) const {
  Value* sum = nullptr;
  for (double c : coefficients) {
    sum = sum ? fma(sum, x, like(x, c)) : like(x, c);
  }
  return sum;
}

Value* Vec::poly(Value* x, Value* square, std::initializer_list<double> coefficients) const {
  const double* c = coefficients.begin();
  Value* sum = coefficients.size() % 2 ? like(x, *c++) : nullptr;
  for (; c != coefficients.end(); c += 2) {
    Value* pair = fma(x, like(x, c[0]), like(x, c[1]));
    sum = sum ? fma(sum, square, pair) : pair;
  }
  return sum;
}

Value* Vec::by_parts(int part_width, llvm::ArrayRef<Value*> args, PartBody body) const {
  Vec part(ir, isa, part_width);
  llvm::SmallVector<Value*, 4> results;
  for (int first = 0; first < width; first += part_width) {
    llvm::SmallVector<int, 16> lanes(part_width);
    std::iota(lanes.begin(), lanes.end(), first);
    llvm::SmallVector<Value*, 3> part_args;
    for (Value* a : args) {
      part_args.push_back(ir.CreateShuffleVector(a, lanes));
    }
    results.push_back(body(part, part_args));
  }
  return llvm::concatenateVectors(ir, results);
}

Value* Vec::look_up(llvm::ArrayRef<float> table, Value* number) const {
  llvm::Constant* entries = llvm::ConstantDataVector::get(ir.getContext(), table);
  if (width == 16) {
    return ir.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {entries, number});
  }
  XLA_ASSERT(width == 1, "code generation: a table for ", width, " lanes");
  return ir.CreateExtractElement(entries, ir.CreateAnd(number, i32(15)));
}

} // namespace torch_xla::cpu
