// Kernels that reduce rows: one sweep over the row for each stage of the plan.
#include "engine/cpu/codegen/convert.h"
#include "engine/cpu/codegen/emitter.h"
#include "engine/cpu/codegen/memory.h"
#include "engine/cpu/codegen/primitive.h"

namespace torch_xla::cpu {

namespace {

constexpr int64_t kScratchAlign = 64;

class RowEmitter : public Emitter {
 public:
  using Emitter::Emitter;

  void emit() {
    allocate_scratch();
    emit_fixed();
    emit_loop(ir_, function_->getArg(2), function_->getArg(3), 1, {}, [&](Value* row, llvm::ArrayRef<Value*>) {
      auto saved = save();
      enter_row(row);
      for (size_t s = 0; s < plan_.sweeps.size(); ++s) {
        if (s > 0) {
          emit_scalars(static_cast<int>(s));
        }
        emit_sweep(plan_.sweeps[s]);
      }
      restore(saved);
      return Carried();
    });
    ir_.CreateRetVoid();
  }

 private:
  // Space for whole vectors, as the last one of a row is stored whole.
  void allocate_scratch() {
    int64_t elements = num_elements(spec_.mid) * inner_ + wide_.width;
    for (DType t : plan_.scratch_types) {
      auto* array = ir_.CreateAlloca(memory_type(wide_, compute_type(t)), i64(elements));
      array->setAlignment(llvm::Align(kScratchAlign));
      scratch_.push_back(array);
    }
  }

  // Several accumulators taken in turn keep the additions of a long row independent of each other.
  int copies() const {
    int64_t vectors = inner_ / wide_.width;
    return vectors >= 16 ? 4 : vectors >= 4 ? 2 : 1;
  }

  void emit_sweep(const Sweep& sweep) {
    Accumulators acc{sweep.reduces, copies()};
    Carried totals = over_mid(acc, neutral_values(acc), [&](llvm::ArrayRef<Value*> carried) {
      Vec one = scalar();
      emit_values(sweep.mid_values, {one, nullptr, nullptr});
      Carried next = emit_inner(sweep, acc, carried);
      emit_stores(sweep.mid_stores, {one, nullptr, nullptr});
      return next;
    });
    for (size_t r = 0; r < sweep.reduces.size(); ++r) {
      values_[sweep.reduces[r]] = row_result(sweep.reduces[r], llvm::ArrayRef<Value*>(totals).slice(r * acc.copies, acc.copies));
    }
  }

  Carried emit_inner(const Sweep& sweep, const Accumulators& acc, llvm::ArrayRef<Value*> carried) {
    if (sweep.reduces.empty() && sweep.stores.empty()) {
      return Carried();
    }
    if (prefers_one_body(sweep)) {
      return accumulate(acc, inner_, wide_.width, carried, [&](Value* index, llvm::ArrayRef<Value*> c) {
        return emit_vector(sweep, acc, {wide_, index, wide_.first_lanes(ir_.CreateSub(i64(inner_), index))}, c);
      });
    }
    int64_t whole = inner_ / wide_.width * wide_.width;
    Carried next = accumulate(acc, whole, wide_.width, carried, [&](Value* index, llvm::ArrayRef<Value*> c) {
      return emit_vector(sweep, acc, {wide_, index, nullptr}, c);
    });
    if (whole == inner_) {
      return next;
    }
    return emit_vector(sweep, acc, {wide_, i64(whole), wide_.first_lanes(i64(inner_ - whole))}, next);
  }

  // The oldest accumulator takes the vector and becomes the youngest.
  Carried emit_vector(const Sweep& sweep, const Accumulators& acc, const Position& p, llvm::ArrayRef<Value*> carried) {
    for (int id : sweep.reloads) {
      values_[id] = emit_load(wide_, compute_type(spec_.body[id].dtype), scratch_address(id, p), 1, nullptr);
    }
    emit_values(sweep.values, p);
    Carried next;
    for (size_t r = 0; r < sweep.reduces.size(); ++r) {
      auto mine = carried.slice(r * acc.copies, acc.copies);
      next.append(mine.begin() + 1, mine.end());
      next.push_back(reduced(sweep.reduces[r], mine.front(), p));
    }
    for (int id : sweep.spills) {
      DType t = compute_type(spec_.body[id].dtype);
      emit_store(wide_, t, t, values_[id], scratch_address(id, p), 1, nullptr);
    }
    emit_stores(sweep.stores, p);
    return next;
  }

  Value* scratch_address(int id, const Position& p) {
    Value* base = scratch_[plan_.scratch_slot[id]];
    Value* row = mid_step_ ? ir_.CreateMul(mid_step_, i64(inner_)) : i64(0);
    return element_address(wide_, compute_type(spec_.body[id].dtype), base, ir_.CreateAdd(row, p.index));
  }

  Value* row_result(int id, llvm::ArrayRef<Value*> accumulators) {
    const Instr& instr = spec_.body[id];
    Value* sum = accumulators.front();
    for (Value* a : accumulators.drop_front()) {
      sum = combine(wide_, instr.prim, instr.dtype, sum, a);
    }
    return combine_lanes(wide_, instr.prim, instr.dtype, sum);
  }

  std::vector<Value*> scratch_;
};

} // namespace

void emit_rows(const KernelSpec& spec, const Isa& isa, llvm::Function* function) {
  RowEmitter(spec, isa, function).emit();
}

} // namespace torch_xla::cpu
