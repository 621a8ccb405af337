// Kernels without reductions: one loop over elements, or one per row.
#include "engine/cpu/codegen/emitter.h"

namespace torch_xla::cpu {

namespace {

class PointwiseEmitter : public Emitter {
 public:
  using Emitter::Emitter;

  void emit() {
    emit_fixed();
    Value* begin = function_->getArg(2);
    Value* end = function_->getArg(3);
    if (spec_.outer.empty()) {
      emit_elements(begin, end);
    } else {
      emit_loop(ir_, begin, end, 1, {}, [&](Value* row, llvm::ArrayRef<Value*>) {
        auto saved = save();
        enter_row(row);
        emit_elements(i64(0), inner_extent());
        restore(saved);
        return Carried();
      });
    }
    ir_.CreateRetVoid();
  }

 private:
  bool has_elements() const {
    return !stages_.sweeps[0].stores.empty();
  }

  void emit_elements(Value* begin, Value* end) {
    if (!has_elements()) {
      return;
    }
    if (prefers_one_body(stages_.sweeps[0])) {
      emit_loop(ir_, begin, end, wide_.width, {}, [&](Value* index, llvm::ArrayRef<Value*>) {
        emit_vector(index, wide_.first_lanes(ir_.CreateSub(end, index)));
        return Carried();
      });
    } else {
      emit_whole_and_rest(begin, end);
    }
  }

  void emit_whole_and_rest(Value* begin, Value* end) {
    Value* whole = ir_.CreateAnd(ir_.CreateSub(end, begin), i64(-wide_.width));
    Value* whole_end = ir_.CreateAdd(begin, whole);
    emit_loop(ir_, begin, whole_end, wide_.width, {}, [&](Value* index, llvm::ArrayRef<Value*>) {
      emit_vector(index, nullptr);
      return Carried();
    });
    emit_if(ir_, ir_.CreateICmpULT(whole_end, end), [&] { emit_vector(whole_end, wide_.first_lanes(ir_.CreateSub(end, whole_end))); });
  }

  void emit_vector(Value* index, Value* mask) {
    Position p{wide_, index, mask};
    emit_values(stages_.sweeps[0].values, p);
    emit_stores(stages_.sweeps[0].stores, p);
  }
};

} // namespace

void emit_pointwise(const KernelSpec& spec, const Isa& isa, llvm::Function* function) {
  PointwiseEmitter(spec, isa, function).emit();
}

} // namespace torch_xla::cpu
