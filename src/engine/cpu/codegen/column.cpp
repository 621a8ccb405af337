// Kernels that reduce columns: blocks of 64 inner elements are accumulated in registers over the mid loops.
#include "engine/cpu/codegen/emitter.h"
#include "engine/cpu/cost.h"

namespace torch_xla::cpu {

namespace {

class ColumnEmitter : public Emitter {
 public:
  using Emitter::Emitter;

  void emit() {
    emit_fixed();
    Value* blocks = ir_.CreateUDiv(ir_.CreateAdd(inner_extent(), i64(kColumnBlock - 1)), i64(kColumnBlock));
    emit_loop(ir_, function_->getArg(2), function_->getArg(3), 1, {}, [&](Value* unit, llvm::ArrayRef<Value*>) {
      auto saved = save();
      enter_row(ir_.CreateUDiv(unit, blocks));
      emit_block(ir_.CreateMul(ir_.CreateURem(unit, blocks), i64(kColumnBlock)));
      restore(saved);
      return Carried();
    });
    ir_.CreateRetVoid();
  }

 private:
  void emit_block(Value* first) {
    Value* whole_end = ir_.CreateAnd(inner_extent(), i64(-kColumnBlock));
    const bool is_known = llvm::isa<llvm::Constant>(whole_end);
    auto emit_rest = [&] { is_known ? emit_vectors(first, inner_ % kColumnBlock) : emit_partial_block(first); };
    if (is_known && inner_ % kColumnBlock == 0) {
      emit_vectors(first, kColumnBlock);
    } else if (inner_ < kColumnBlock) {
      emit_rest();
    } else {
      Value* whole = ir_.CreateICmpULT(first, whole_end);
      emit_if(ir_, whole, [&] { emit_vectors(first, kColumnBlock); });
      emit_if(ir_, ir_.CreateNot(whole), emit_rest);
    }
  }

  // Emits vectors for this number of elements; the last vector may be partial.
  void emit_vectors(Value* first, int64_t elements) {
    const int64_t rest = elements % wide_.width;
    const int whole = static_cast<int>(elements / wide_.width);
    const int vectors = whole + (rest ? 1 : 0);
    Value* mask = rest ? wide_.first_lanes(i64(rest)) : nullptr;
    if (vectors_together(vectors) == vectors) {
      return emit_group(first, vectors, mask);
    }
    const int together = vectors_together(whole);
    Value* whole_end = ir_.CreateAdd(first, i64(whole * wide_.width));
    emit_loop(ir_, first, whole_end, together * wide_.width, {}, [&](Value* index, llvm::ArrayRef<Value*>) {
      emit_group(index, together, nullptr);
      return Carried();
    });
    if (rest) {
      emit_group(whole_end, 1, mask);
    }
  }

  // Number of neighbouring vectors computed in one pass over the mid loops, to read memory in longer pieces: a divisor of `vectors`.
  int vectors_together(int vectors) const {
    const Sweep& sweep = stages_.sweeps[0];
    auto fits = [&](size_t count) {
      return count * (sweep.values.size() + sweep.reduces.size()) <= kMaxColumnBody && count * sweep.reduces.size() <= kMaxAccumulators;
    };
    while (vectors > 1 && !fits(static_cast<size_t>(vectors))) {
      vectors = vectors % 2 ? 1 : vectors / 2;
    }
    return vectors;
  }

  void emit_partial_block(Value* first) {
    emit_loop(ir_, first, inner_extent(), wide_.width, {}, [&](Value* index, llvm::ArrayRef<Value*>) {
      emit_group(index, 1, wide_.first_lanes(ir_.CreateSub(inner_extent(), index)));
      return Carried();
    });
  }

  // `vectors` neighbouring vectors from inner index `first` on. `mask`, if not null: the active lanes of the last one.
  void emit_group(Value* first, int vectors, Value* mask) {
    Accumulators acc{stages_.sweeps[0].reduces, vectors};
    Carried totals =
        over_mid(acc, neutral_values(acc), [&](llvm::ArrayRef<Value*> carried) { return emit_step(acc, first, mask, carried); });
    if (stages_.sweeps.size() < 2) {
      return;
    }
    for (int n = 0; n < vectors; ++n) {
      Position p = position(first, n, vectors, mask);
      for (size_t r = 0; r < acc.reduces.size(); ++r) {
        values_[acc.reduces[r]] = totals[r * vectors + n];
      }
      emit_values(stages_.sweeps[1].values, p);
      emit_stores(stages_.sweeps[1].stores, p);
    }
  }

  Carried emit_step(const Accumulators& acc, Value* first, Value* mask, llvm::ArrayRef<Value*> carried) {
    const Sweep& sweep = stages_.sweeps[0];
    Vec one = scalar();
    emit_values(sweep.mid_values, {one, nullptr, nullptr});
    emit_stores(sweep.mid_stores, {one, nullptr, nullptr});
    Carried next(carried.begin(), carried.end());
    for (int n = 0; n < acc.copies; ++n) {
      Position p = position(first, n, acc.copies, mask);
      emit_values(sweep.values, p);
      for (size_t r = 0; r < acc.reduces.size(); ++r) {
        size_t slot = r * acc.copies + n;
        next[slot] = reduced(acc.reduces[r], carried[slot], p);
      }
      emit_stores(sweep.stores, p);
    }
    return next;
  }

  // The position of vector n; the mask is for the last one.
  Position position(Value* first, int n, int vectors, Value* mask) {
    return {wide_, ir_.CreateAdd(first, i64(n * wide_.width)), n + 1 < vectors ? nullptr : mask};
  }
};

} // namespace

void emit_columns(const KernelSpec& spec, const Isa& isa, llvm::Function* function) {
  ColumnEmitter(spec, isa, function).emit();
}

} // namespace torch_xla::cpu
