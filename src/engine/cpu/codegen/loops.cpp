// Emits loops rotated (test at the end, guard in front unless the bounds show that it runs), as LICM wants them.
#include "engine/cpu/codegen/loops.h"

namespace torch_xla::cpu {

using llvm::BasicBlock;
using llvm::PHINode;
using llvm::Value;

namespace {

using Phis = llvm::SmallVector<PHINode*, 8>;

BasicBlock* new_block(llvm::IRBuilder<>& ir, const char* name) {
  return BasicBlock::Create(ir.getContext(), name, ir.GetInsertBlock()->getParent());
}

// The comparison as a constant if both of its operands are.
llvm::ConstantInt* find_constant(Value* condition) {
  return llvm::dyn_cast<llvm::ConstantInt>(condition);
}

bool runs_once(Value* first, Value* last, int64_t step) {
  auto* a = find_constant(first);
  auto* b = find_constant(last);
  return a && b && b->getSExtValue() - a->getSExtValue() <= step;
}

Phis emit_phis(llvm::IRBuilder<>& ir, BasicBlock* from, llvm::ArrayRef<Value*> init) {
  Phis phis;
  for (Value* v : init) {
    phis.push_back(ir.CreatePHI(v->getType(), 2));
    phis.back()->addIncoming(v, from);
  }
  return phis;
}

void add_incoming(const Phis& phis, llvm::ArrayRef<Value*> values, BasicBlock* from) {
  for (size_t i = 0; i < phis.size(); ++i) {
    phis[i]->addIncoming(values[i], from);
  }
}

} // namespace

Carried emit_loop(llvm::IRBuilder<>& ir, Value* first, Value* last, int64_t step, llvm::ArrayRef<Value*> init, LoopBody body) {
  Value* enter = ir.CreateICmpULT(first, last);
  auto* known = find_constant(enter);
  if (known && known->isZero()) {
    return Carried(init.begin(), init.end());
  }
  if (runs_once(first, last, step)) {
    return body(first, init);
  }
  BasicBlock* before = ir.GetInsertBlock();
  BasicBlock* loop = new_block(ir, "loop");
  BasicBlock* after = new_block(ir, "after");
  known ? ir.CreateBr(loop) : ir.CreateCondBr(enter, loop, after);

  ir.SetInsertPoint(loop);
  PHINode* index = ir.CreatePHI(ir.getInt64Ty(), 2);
  index->addIncoming(first, before);
  Phis phis = emit_phis(ir, before, init);
  Carried next = body(index, Carried(phis.begin(), phis.end()));
  Value* stepped = ir.CreateAdd(index, ir.getInt64(step), "", true, true);
  BasicBlock* latch = ir.GetInsertBlock();
  ir.CreateCondBr(ir.CreateICmpULT(stepped, last), loop, after);
  index->addIncoming(stepped, latch);
  add_incoming(phis, next, latch);

  ir.SetInsertPoint(after);
  Phis results = emit_phis(ir, latch, next);
  if (!known) {
    add_incoming(results, init, before);
  }
  return Carried(results.begin(), results.end());
}

void emit_if(llvm::IRBuilder<>& ir, Value* condition, llvm::function_ref<void()> body) {
  if (auto* known = find_constant(condition)) {
    return known->isOne() ? body() : void();
  }
  BasicBlock* inside = new_block(ir, "then");
  BasicBlock* after = new_block(ir, "endif");
  ir.CreateCondBr(condition, inside, after);
  ir.SetInsertPoint(inside);
  body();
  ir.CreateBr(after);
  ir.SetInsertPoint(after);
}

} // namespace torch_xla::cpu
