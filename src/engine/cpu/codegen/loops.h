// Counted loops in LLVM IR with values carried from one iteration to the next.
#pragma once

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/IRBuilder.h>

namespace torch_xla::cpu {

using Carried = llvm::SmallVector<llvm::Value*, 8>;
using LoopBody = llvm::function_ref<Carried(llvm::Value* index, llvm::ArrayRef<llvm::Value*> carried)>;

// for (index = first; index < last; index += step) carried = body(index, carried);  returns the last ones. Bounds are i64, step > 0.
Carried emit_loop(
    llvm::IRBuilder<>& ir, llvm::Value* first, llvm::Value* last, int64_t step, llvm::ArrayRef<llvm::Value*> init, LoopBody body);

// if (condition) body();  without results. Nothing is emitted if the condition is known to be false.
void emit_if(llvm::IRBuilder<>& ir, llvm::Value* condition, llvm::function_ref<void()> body);

} // namespace torch_xla::cpu
