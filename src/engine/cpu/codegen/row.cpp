// Kernels that reduce rows: one sweep over the row for each stage of the plan. Short rows are computed two at a time.
#include "engine/cpu/codegen/convert.h"
#include "engine/cpu/codegen/emitter.h"
#include "engine/cpu/codegen/memory.h"
#include "engine/cpu/codegen/primitive.h"
#include "engine/cpu/cost.h"

namespace torch_xla::cpu {

namespace {

constexpr int64_t kScratchAlign = 64; // a cache line, and the widest vector

class RowEmitter : public Emitter {
 public:
  using Emitter::Emitter;

  void emit() {
    emit_fixed();
    Value* begin = function_->getArg(2);
    Value* end = function_->getArg(3);
    if (prefers_pairs()) {
      Value* pairs_end = ir_.CreateAdd(begin, ir_.CreateAnd(ir_.CreateSub(end, begin), ir_.getInt64(~uint64_t{1})));
      emit_row_loop(begin, pairs_end, 2);
      begin = pairs_end;
    }
    emit_row_loop(begin, end, 1);
    ir_.CreateRetVoid();
  }

 private:
  // The state of one of the rows that a body computes together; Emitter's members hold the selected row's.
  struct Row {
    Origin origin;
    std::vector<Value*> values; // by instruction
    std::vector<Value*> scratch; // by slot
  };

  // A second row gives the processor work while the first one's reductions end.
  bool prefers_pairs() const {
    int64_t few = isa_.avx512 ? kShortRow : kShortRowOfTwo;
    return spec_.mid.empty() && inner_ <= few * kVectorElements && stages_.sweeps.size() > 1 && has_many_rows();
  }

  bool has_many_rows() const {
    int64_t rows = 1;
    for (int64_t extent : spec_.outer) {
      rows = std::min(rows * std::min(extent, kManyRows), kManyRows);
    }
    return rows == kManyRows;
  }

  void emit_row_loop(Value* begin, Value* end, int64_t together) {
    const Row fixed{save(), values_, {}};
    rows_.assign(static_cast<size_t>(together), fixed);
    selected_ = 0;
    for (Row& row : rows_) {
      allocate_scratch(row);
    }
    emit_loop(ir_, begin, end, together, {}, [&](Value* first, llvm::ArrayRef<Value*>) {
      for_each_row([&](size_t r) { enter_row(ir_.CreateAdd(first, i64(static_cast<int64_t>(r)))); });
      for (size_t s = 0; s < stages_.sweeps.size(); ++s) {
        if (s > 0) {
          for_each_row([&](size_t) { emit_scalars(static_cast<int>(s)); });
        }
        emit_sweep(stages_.sweeps[s]);
      }
      return Carried();
    });
    restore(fixed.origin);
    values_ = fixed.values;
  }

  void for_each_row(llvm::function_ref<void(size_t)> emit) {
    for (size_t r = 0; r < rows_.size(); ++r) {
      select(r);
      emit(r);
    }
    select(0);
  }

  void select(size_t r) {
    if (r == selected_) {
      return;
    }
    rows_[selected_].origin = save();
    std::swap(rows_[selected_].values, values_);
    restore(rows_[r].origin);
    std::swap(rows_[r].values, values_);
    selected_ = r;
  }

  // Space for whole vectors, as the last one of a row is stored whole.
  void allocate_scratch(Row& row) {
    if (stages_.scratch_types.empty()) {
      return;
    }
    int64_t elements = num_elements(spec_.mid) * inner_ + wide_.width;
    llvm::IRBuilder<>::InsertPointGuard guard(ir_);
    llvm::BasicBlock& entry = function_->getEntryBlock();
    ir_.SetInsertPoint(&entry, entry.begin());
    for (DType t : stages_.scratch_types) {
      auto* array = ir_.CreateAlloca(memory_type(wide_, compute_type(t)), i64(elements));
      array->setAlignment(llvm::Align(kScratchAlign));
      row.scratch.push_back(array);
    }
  }

  // Several accumulators taken in turn keep the additions of a long row independent of each other.
  int copies() const {
    int64_t vectors = inner_ / kVectorElements;
    return vectors >= kVectorsForFour ? 4 : vectors >= kVectorsForTwo ? 2 : 1;
  }

  void emit_sweep(const Sweep& sweep) {
    Accumulators acc{sweep.reduces, copies()};
    Vec one = scalar();
    Carried neutral;
    for_each_row([&](size_t) { neutral.append(neutral_values(acc)); });
    Carried totals = over_mid(acc, neutral, [&](llvm::ArrayRef<Value*> carried) {
      for_each_row([&](size_t) { emit_values(sweep.mid_values, {one, nullptr, nullptr}); });
      Carried next = emit_inner(sweep, acc, carried);
      for_each_row([&](size_t) { emit_stores(sweep.mid_stores, {one, nullptr, nullptr}); });
      return next;
    });
    for_each_row([&](size_t r) {
      for (size_t i = 0; i < sweep.reduces.size(); ++i) {
        values_[sweep.reduces[i]] = row_result(sweep.reduces[i], of_row(acc, totals, r).slice(i * acc.copies, acc.copies));
      }
    });
  }

  static llvm::ArrayRef<Value*> of_row(const Accumulators& acc, llvm::ArrayRef<Value*> all, size_t r) {
    size_t count = acc.reduces.size() * static_cast<size_t>(acc.copies);
    return all.slice(r * count, count);
  }

  Carried emit_inner(const Sweep& sweep, const Accumulators& acc, llvm::ArrayRef<Value*> carried) {
    if (sweep.reduces.empty() && sweep.stores.empty()) {
      return Carried();
    }
    Value* last = inner_extent();
    auto masked = [&](Value* index, llvm::ArrayRef<Value*> c) {
      return emit_vectors(sweep, acc, {wide_, index, wide_.first_lanes(ir_.CreateSub(last, index))}, c);
    };
    if (prefers_one_body(sweep)) {
      return accumulate(acc, last, inner_, wide_.width, carried, masked);
    }
    Value* whole = ir_.CreateAnd(last, i64(-wide_.width));
    Carried next = accumulate(acc, whole, inner_ & -wide_.width, wide_.width, carried, [&](Value* index, llvm::ArrayRef<Value*> c) {
      return emit_vectors(sweep, acc, {wide_, index, nullptr}, c);
    });
    return emit_loop(ir_, whole, last, wide_.width, next, masked); // once at most
  }

  Carried emit_vectors(const Sweep& sweep, const Accumulators& acc, const Position& p, llvm::ArrayRef<Value*> carried) {
    Carried next;
    for_each_row([&](size_t r) { next.append(emit_vector(sweep, acc, p, of_row(acc, carried, r))); });
    return next;
  }

  // The oldest accumulator takes the vector and becomes the youngest.
  Carried emit_vector(const Sweep& sweep, const Accumulators& acc, const Position& p, llvm::ArrayRef<Value*> carried) {
    for (int id : sweep.reloads) {
      values_[id] = emit_load(wide_, compute_type(spec_.body[id].dtype), scratch_address(id, p), i64(1), nullptr);
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
      emit_store(wide_, t, t, values_[id], scratch_address(id, p), i64(1), nullptr);
    }
    emit_stores(sweep.stores, p);
    return next;
  }

  Value* scratch_address(int id, const Position& p) {
    Value* base = rows_[selected_].scratch[stages_.scratch_slot[id]];
    Value* row = mid_step_ ? ir_.CreateMul(mid_step_, inner_extent()) : i64(0);
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

  std::vector<Row> rows_;
  size_t selected_ = 0;
};

} // namespace

void emit_rows(const KernelSpec& spec, const Isa& isa, llvm::Function* function) {
  RowEmitter(spec, isa, function).emit();
}

} // namespace torch_xla::cpu
