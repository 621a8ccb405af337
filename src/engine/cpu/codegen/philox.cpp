// Random words, after Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3 (SC 2011).
#include "engine/cpu/codegen/philox.h"

#include "core/philox.h"

namespace torch_xla::cpu {

namespace {

Value* low_word(const Vec& v, Value* x) {
  return v.ir.CreateTrunc(x, v.type(DType::I32));
}

Value* high_word(const Vec& v, Value* x) {
  return low_word(v, v.ir.CreateLShr(x, v.integer(DType::I64, 32)));
}

Value* full_product(const Vec& v, Value* x, uint32_t multiplier) {
  return v.ir.CreateMul(v.ir.CreateZExt(x, v.type(DType::I64)), v.integer(DType::I64, multiplier));
}

} // namespace

std::array<Value*, 4> emit_philox(const Vec& v, Value* seed, Value* offset, Value* index) {
  std::array<Value*, 4> c = {low_word(v, index), high_word(v, index), low_word(v, offset), high_word(v, offset)};
  Value* key0 = low_word(v, seed);
  Value* key1 = high_word(v, seed);
  for (int round = 0; round < philox::kRounds; ++round) {
    Value* p0 = full_product(v, c[0], philox::kMultiplier0);
    Value* p1 = full_product(v, c[2], philox::kMultiplier1);
    Value* word0 = v.ir.CreateXor(v.ir.CreateXor(high_word(v, p1), c[1]), key0);
    Value* word2 = v.ir.CreateXor(v.ir.CreateXor(high_word(v, p0), c[3]), key1);
    c = {word0, low_word(v, p1), word2, low_word(v, p0)};
    key0 = v.ir.CreateAdd(key0, v.i32(static_cast<int32_t>(philox::kWeyl0)));
    key1 = v.ir.CreateAdd(key1, v.i32(static_cast<int32_t>(philox::kWeyl1)));
  }
  return c;
}

} // namespace torch_xla::cpu
