// Builds the LLVM function of a kernel: loops, loads, values, reductions, stores.
#pragma once

#include <string>
#include <vector>

#include "engine/cpu/codegen/loops.h"
#include "engine/cpu/codegen/stages.h"
#include "engine/cpu/codegen/vec.h"

namespace torch_xla::cpu {

// Adds the function `name` with KernelFn's signature to the module.
void emit_kernel(const KernelSpec& spec, const Isa& isa, llvm::Module& module, const std::string& name);

// The current place in the inner loop.
struct Position {
  const Vec& v;
  Value* index; // of lane 0 in the inner loop; null outside of it
  Value* mask; // active lanes; null: all
};

// The accumulators of a sweep's reductions, `copies` of each, in one flat list.
struct Accumulators {
  const std::vector<int>& reduces;
  int copies;
};

// The shared base of the emitters of the three kernel forms. Values of the open loops are members: set on entering a loop, restored on
// leaving it.
class Emitter {
 public:
  Emitter(const KernelSpec& spec, const Isa& isa, llvm::Function* function);

 protected:
  // Computes the values that vary with no loop; call it first.
  void emit_fixed();
  // The number of a loop's iterations (i64): a constant, or an argument with the bound spec_.extent().
  Value* extent(size_t loop) const;
  Value* inner_extent() const {
    return extent(spec_.num_loops() - 1);
  }
  // Sets the outer indices from the number of the row and computes the row's scalars of stage 0.
  void enter_row(Value* row);
  void emit_scalars(int stage);

  // Addresses of all buffers and values of all indices at index 0 of the loops not entered yet.
  struct Origin {
    llvm::SmallVector<Value*, 8> addresses;
    llvm::SmallVector<Value*, 2> indices;
  };
  Origin save() const {
    return origin_;
  }
  void restore(const Origin& origin) {
    origin_ = origin;
  }

  void emit_values(const std::vector<int>& ids, const Position& p);
  void emit_stores(const std::vector<int>& ids, const Position& p);
  Value* operand(int id, const Vec& v) const;

  // Whether all vectors of the inner loop are masked, not only the last one: slower, but half the code to compile.
  bool prefers_one_body(const Sweep& sweep) const;

  // Emits body within all mid loops; its argument and result are the carried accumulators.
  using CarriedBody = llvm::function_ref<Carried(llvm::ArrayRef<Value*>)>;
  Carried over_mid(const Accumulators& acc, llvm::ArrayRef<Value*> totals, CarriedBody body, size_t d = 0);
  // A loop from 0 to `last` with accumulators; long loops are split for accuracy, see kernel.h. `most` is the largest value of `last`.
  Carried accumulate(const Accumulators& acc, Value* last, int64_t most, int64_t step, llvm::ArrayRef<Value*> totals, LoopBody body);
  Carried neutral_values(const Accumulators& acc) const;
  // The reduction after one more vector of operands, without inactive lanes.
  Value* reduced(int id, Value* accumulator, const Position& p) const;

  Vec scalar() const {
    return Vec(ir_, isa_, 1);
  }
  Value* i64(int64_t v) const {
    return ir_.getInt64(v);
  }

  const KernelSpec& spec_;
  const Isa& isa_;
  const Stages stages_;
  llvm::Function* function_;
  mutable llvm::IRBuilder<> ir_;
  const Vec wide_;
  const int64_t inner_; // at most
  std::vector<Value*> values_; // by instruction: its latest value
  Value* mid_step_ = nullptr; // linear index of the mid loops

 private:
  Value* find_argument(KernelArgument::Kind kind, int64_t at, int64_t value) const;
  Value* stride(size_t loop, int64_t value) const;
  Value* inner_stride(int64_t value) const {
    return stride(spec_.num_loops() - 1, value);
  }
  void move(size_t loop, Value* index);
  Value* emit_value(int id, const Position& p);
  Value* emit_load_at(const Instr& instr, const Position& p);
  Value* emit_index(int number, const Position& p);
  Value* emit_random(const Instr& instr, const Position& p);
  Value* emit_constant(int id);
  Value* emit_slot(size_t slot, DType slot_type, DType to) const;
  DType operand_type(const Instr& instr) const;
  Carried accumulate_tree(const Accumulators& acc, Value* first, Value* last, int64_t length, int64_t step, LoopBody body);
  Carried combined(const Accumulators& acc, llvm::ArrayRef<Value*> a, llvm::ArrayRef<Value*> b) const;

  Origin origin_;
  std::vector<Value*> arguments_; // parallel to spec_.arguments: i64; bits for constants
};

// The forms; each emits the whole function.
void emit_pointwise(const KernelSpec& spec, const Isa& isa, llvm::Function* function);
void emit_rows(const KernelSpec& spec, const Isa& isa, llvm::Function* function);
void emit_columns(const KernelSpec& spec, const Isa& isa, llvm::Function* function);

} // namespace torch_xla::cpu
