// Code of conversions. 16-bit floats live as float in registers, rounded to their type; a store only drops the bits that are zero.
#include "engine/cpu/codegen/convert.h"

namespace torch_xla::cpu {

namespace {

// Nearest even; NaN stays a quiet NaN.
Value* round_to_bf16(const Vec& v, Value* x) {
  auto& ir = v.ir;
  Value* bits = v.bits(x, DType::I32);
  Value* odd = ir.CreateAnd(ir.CreateLShr(bits, v.i32(16)), v.i32(1));
  Value* rounded = ir.CreateAdd(bits, ir.CreateAdd(odd, v.i32(0x7fff)));
  Value* chosen = ir.CreateSelect(ir.CreateFCmpUNO(x, x), ir.CreateOr(bits, v.i32(0x400000)), rounded);
  return v.bits(ir.CreateAnd(chosen, v.i32(static_cast<int32_t>(0xffff0000))), DType::F32);
}

Value* round_to_f16(const Vec& v, Value* x) {
  Value* half = v.ir.CreateFPTrunc(x, v.widen(v.ir.getHalfTy()));
  return v.ir.CreateFPExt(half, v.type(DType::F32));
}

Value* to_float(const Vec& v, DType from, DType to, Value* x) {
  auto& ir = v.ir;
  llvm::Type* type = v.type(to);
  if (!is_float(from)) {
    bool is_signed = from != DType::Bool && from != DType::U8;
    x = is_signed ? ir.CreateSIToFP(x, type) : ir.CreateUIToFP(x, type);
  } else if (from == DType::F64 || to == DType::F64) {
    x = ir.CreateFPCast(x, type);
  }
  if (to == from || !is_reduced_float(to)) {
    return x;
  }
  return to == DType::F16 ? round_to_f16(v, x) : round_to_bf16(v, x);
}

// For numbers out of range LLVM's result is poison. Frozen it is an arbitrary number, and behind a fence the processor's number: without it
// the passes would reduce select(c, -inf, y) to y.
Value* truncate(const Vec& v, DType to, Value* x) {
  auto& ir = v.ir;
  bool wide = to == DType::I64;
  Value* i = ir.CreateFreeze(ir.CreateFPToSI(v.fenced(x), v.type(wide ? DType::I64 : DType::I32)));
  return wide || to == DType::I32 ? i : ir.CreateTrunc(i, v.type(to));
}

} // namespace

Value* emit_convert(const Vec& v, DType from, DType to, Value* x) {
  auto& ir = v.ir;
  if (is_float(to)) {
    return to_float(v, from, to, x);
  }
  if (to == DType::Bool) {
    llvm::Constant* zero = llvm::Constant::getNullValue(x->getType());
    return from == to ? x : is_float(from) ? ir.CreateFCmpUNE(x, zero) : ir.CreateICmpNE(x, zero);
  }
  if (is_float(from)) {
    return truncate(v, to, x);
  }
  return ir.CreateIntCast(x, v.type(to), from != DType::Bool && from != DType::U8);
}

llvm::Type* memory_type(const Vec& v, DType t) {
  switch (t) {
    case DType::Bool:
      return v.ir.getInt8Ty();
    case DType::F16:
      return v.ir.getHalfTy();
    case DType::BF16:
      return v.ir.getInt16Ty();
    default:
      return v.lane_type(t);
  }
}

Value* unpack(const Vec& v, DType t, Value* raw) {
  auto& ir = v.ir;
  switch (t) {
    case DType::Bool:
      return ir.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType()));
    case DType::F16:
      return ir.CreateFPExt(raw, v.type(DType::F32));
    case DType::BF16:
      return v.bits(ir.CreateShl(ir.CreateZExt(raw, v.i32()), v.i32(16)), DType::F32);
    default:
      return raw;
  }
}

Value* pack(const Vec& v, DType t, DType from, Value* x) {
  auto& ir = v.ir;
  x = from == t ? x : emit_convert(v, from, t, x);
  switch (t) {
    case DType::Bool:
      return ir.CreateZExt(x, v.widen(ir.getInt8Ty()));
    case DType::F16:
      return ir.CreateFPTrunc(x, v.widen(ir.getHalfTy()));
    case DType::BF16:
      return ir.CreateTrunc(ir.CreateLShr(v.bits(x, DType::I32), v.i32(16)), v.widen(ir.getInt16Ty()));
    default:
      return x;
  }
}

} // namespace torch_xla::cpu
