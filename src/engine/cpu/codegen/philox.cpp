// Random words, after Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3 (SC 2011).
#include "engine/cpu/codegen/philox.h"

#include <llvm/IR/Module.h>

#include <algorithm>
#include <array>

#include "core/errors.h"
#include "core/philox.h"
#include "engine/cpu/codegen/loops.h"

namespace torch_xla::cpu {

namespace {

// A word is the lower half of an I64 with arbitrary upper bits: so products need no conversions.
Value* high_word(const Vec& v, Value* x) {
  return v.ir.CreateLShr(x, v.integer(DType::I64, 32));
}

Value* full_product(const Vec& v, Value* word, uint32_t multiplier) {
  return v.ir.CreateMul(v.ir.CreateAnd(word, v.integer(DType::I64, UINT32_MAX)), v.integer(DType::I64, multiplier));
}

// The counter and the key (two scalars) after one round.
Carried emit_round(const Vec& v, llvm::ArrayRef<Value*> c) {
  auto& ir = v.ir;
  Value* p0 = full_product(v, c[0], philox::kMultiplier0);
  Value* p1 = full_product(v, c[2], philox::kMultiplier1);
  Value* word0 = ir.CreateXor(high_word(v, p1), ir.CreateXor(c[1], v.splat(c[4])));
  Value* word2 = ir.CreateXor(high_word(v, p0), ir.CreateXor(c[3], v.splat(c[5])));
  return {word0, p1, word2, p0, ir.CreateAdd(c[4], ir.getInt64(philox::kWeyl0)), ir.CreateAdd(c[5], ir.getInt64(philox::kWeyl1))};
}

void emit_rounds(const Vec& v, Value* seed, Value* offset, Value* index) {
  auto& ir = v.ir;
  const Vec one(ir, v.isa, 1);
  Carried words = {index, high_word(v, index), v.splat(offset), v.splat(high_word(one, offset)), seed, high_word(one, seed)};
  auto round = [&](Value*, llvm::ArrayRef<Value*> c) { return emit_round(v, c); };
  words = emit_loop(ir, ir.getInt64(0), ir.getInt64(philox::kRounds), 1, words, round);
  std::array<Value*, 4> results;
  std::transform(words.begin(), words.begin() + 4, results.begin(), [&](Value* word) { return ir.CreateTrunc(word, v.i32()); });
  ir.CreateAggregateRet(results.data(), results.size());
}

// The module's function for this width. A function with a loop, as ten rounds in the middle of a kernel take longer to compile than the
// rest.
llvm::Function* get_function(const Vec& v) {
  llvm::Module* module = v.ir.GetInsertBlock()->getModule();
  const std::string name = str("philox", v.width);
  if (llvm::Function* function = module->getFunction(name)) {
    return function;
  }
  llvm::Type* word = v.i32();
  llvm::Type* i64 = v.ir.getInt64Ty();
  auto* type = llvm::FunctionType::get(llvm::StructType::get(word, word, word, word), {i64, i64, v.type(DType::I64)}, false);
  auto* function = llvm::Function::Create(type, llvm::Function::InternalLinkage, name, module);
  const llvm::AttributeSet kernels = v.ir.GetInsertBlock()->getParent()->getAttributes().getFnAttrs();
  function->addFnAttrs(llvm::AttrBuilder(module->getContext(), kernels));
  function->setDoesNotAccessMemory(); // so that the passes keep one of equal calls
  function->setWillReturn();
  llvm::IRBuilder<> ir(llvm::BasicBlock::Create(module->getContext(), "entry", function));
  emit_rounds(Vec(ir, v.isa, v.width), function->getArg(0), function->getArg(1), function->getArg(2));
  return function;
}

} // namespace

Value* emit_philox(const Vec& v, Value* seed, Value* offset, Value* index, unsigned word) {
  return v.ir.CreateExtractValue(v.ir.CreateCall(get_function(v), {seed, offset, index}), word);
}

} // namespace torch_xla::cpu
