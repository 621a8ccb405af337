// An IR builder for values of one vector width: the code generator writes every operation once, for 16 or 8 lanes and for scalars.
#pragma once

#include <initializer_list>

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>

#include "core/dtype.h"

namespace torch_xla::cpu {

using llvm::Value;

// What code is generated for.
struct Isa {
  bool avx512 = false;
  bool sleef = false; // libtorch_cpu.so is in the process: its vector functions can be called
  int lanes() const {
    return avx512 ? 16 : 8;
  }
};

// Values of `width` lanes; width 1 means plain scalars. In registers Bool is i1, and the 16-bit floats are float.
class Vec {
 public:
  Vec(llvm::IRBuilder<>& builder, const Isa& target, int lanes) : ir(builder), isa(target), width(lanes) {}

  llvm::Type* lane_type(DType t) const;
  llvm::Type* type(DType t) const;
  // A vector of that lane type.
  llvm::Type* widen(llvm::Type* lane) const;
  llvm::Type* i32() const {
    return type(DType::I32);
  }

  Value* f32(double v) const;
  Value* i32(int64_t v) const;
  Value* number(DType t, double v) const;
  Value* integer(DType t, int64_t v) const;
  // A constant of x's type.
  Value* like(Value* x, double v) const;
  // The value itself if it has this width already.
  Value* splat(Value* x) const;
  // 0, step, 2 * step, ... as I64 or I32.
  Value* ramp(DType t, int64_t step) const;
  Value* ramp(Value* step) const; // I64
  // True in the lanes below `count` (i64).
  Value* first_lanes(Value* count) const;

  Value* fma(Value* a, Value* b, Value* c) const;
  // The same floats, hidden from LLVM's passes; costs no instruction.
  Value* fenced(Value* x) const;
  Value* abs(Value* x) const;
  Value* copysign(Value* magnitude, Value* sign) const;
  // copysign() for magnitudes with a sign bit of 0.
  Value* with_sign(Value* magnitude, Value* sign) const;
  Value* bits(Value* x, DType t) const {
    return ir.CreateBitCast(x, type(t));
  }
  // x if it is NaN, else the nearer of x and the bound.
  Value* at_most(Value* x, Value* bound) const;
  Value* at_least(Value* x, Value* bound) const;
  // Horner's scheme, highest power first.
  Value* poly(Value* x, std::initializer_list<double> coefficients) const;
  // The same in pairs of powers, by x's square: half as many operations wait for each other.
  Value* poly(Value* x, Value* square, std::initializer_list<double> coefficients) const;
  // table[i], where i is the low four bits of a lane's number; with AVX-512.
  Value* look_up(llvm::ArrayRef<float> table, Value* number) const;
  // Calls `body` for each `part_width` lanes of the arguments and joins its results to one vector.
  using PartBody = llvm::function_ref<Value*(const Vec& part, llvm::ArrayRef<Value*> args)>;
  Value* by_parts(int part_width, llvm::ArrayRef<Value*> args, PartBody body) const;

  llvm::IRBuilder<>& ir;
  const Isa& isa;
  const int width;
};

// The constant (ConstantInt, ConstantFP) that x has in all lanes; null if x is not a constant or its lanes differ.
template <typename C>
const C* find_splat(Value* x) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(x);
  return constant ? llvm::dyn_cast_or_null<C>(x->getType()->isVectorTy() ? constant->getSplatValue() : constant) : nullptr;
}

} // namespace torch_xla::cpu
