// Emits values in SSA order at the outermost loop that they vary with; splats of scalars are left to LICM.
#include "engine/cpu/codegen/emitter.h"

#include <bit>

#include <llvm/IR/Module.h>

#include "core/errors.h"
#include "engine/cpu/codegen/convert.h"
#include "engine/cpu/codegen/memory.h"
#include "engine/cpu/codegen/philox.h"
#include "engine/cpu/codegen/primitive.h"
#include "engine/cpu/cost.h"

namespace torch_xla::cpu {

namespace {

llvm::Function* add_function(llvm::Module& module, const std::string& name) {
  auto& context = module.getContext();
  llvm::Type* pointer = llvm::PointerType::getUnqual(context);
  llvm::Type* i64 = llvm::Type::getInt64Ty(context);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer, pointer, i64, i64}, false);
  auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  function->addFnAttr("prefer-vector-width", "512");
  function->addFnAttr("min-legal-vector-width", "512");
  function->addFnAttr(llvm::Attribute::NoUnwind);
  return function;
}

} // namespace

void emit_kernel(const KernelSpec& spec, const Isa& isa, llvm::Module& module, const std::string& name) {
  llvm::Function* function = add_function(module, name);
  switch (spec.form) {
    case KernelForm::kPointwise:
      return emit_pointwise(spec, isa, function);
    case KernelForm::kRow:
      return emit_rows(spec, isa, function);
    case KernelForm::kColumn:
      return emit_columns(spec, isa, function);
  }
}

// Whether processors without AVX-512 take two registers for a vector, which hides latency: in functions, in reductions of short rows, in
// loops with short bodies. Not if that would be four registers, as there are only 16; not for rows that fit one register; not for columns,
// which have neighbouring vectors anyway; not if it would take long to compile.
static bool takes_two_registers(const KernelSpec& spec, const Stages& stages, const Isa& isa) {
  if (isa.avx512) {
    return false; // one register holds a vector
  }
  bool short_rows = spec.form == KernelForm::kRow && spec.inner < kVectorsForFour * kVectorElements;
  bool waits = short_rows || spec.body.size() <= kSmallBody;
  bool large = spec.body.size() > kLargeBody;
  for (size_t i = 0; i < spec.body.size(); ++i) {
    const Instr& instr = spec.body[i];
    waits |= prim_class(instr.prim) == PrimClass::kFunction;
    large |= (stages.varies[i] & kInner) && item_size(compute_type(instr.dtype)) > 4;
  }
  return waits && !large && spec.inner > isa.lanes() && spec.form != KernelForm::kColumn;
}

Emitter::Emitter(const KernelSpec& spec, const Isa& isa, llvm::Function* function)
    : spec_(spec),
      isa_(isa),
      stages_(find_stages(spec)),
      function_(function),
      ir_(llvm::BasicBlock::Create(function->getContext(), "entry", function)),
      wide_(ir_, isa_, takes_two_registers(spec, stages_, isa) ? static_cast<int>(kVectorElements) : isa.lanes()),
      inner_(spec.inner),
      values_(spec.body.size()) {}

void Emitter::emit_fixed() {
  Vec one = scalar();
  for (size_t i = 0; i < spec_.buffers.size(); ++i) {
    Value* slot = ir_.CreateConstGEP1_64(ir_.getPtrTy(), function_->getArg(0), i);
    Value* base = ir_.CreateLoad(ir_.getPtrTy(), slot);
    origin_.addresses.push_back(base);
  }
  origin_.indices.assign(spec_.indices.size(), i64(0));
  for (size_t i = 0; i < spec_.arguments.size(); ++i) {
    arguments_.push_back(emit_slot(spec_.scalars.size() + i, DType::I64, DType::I64));
  }
  emit_values(stages_.fixed, {one, nullptr, nullptr});
  emit_stores(stages_.fixed_stores, {one, nullptr, nullptr});
}

// Null: the number is part of the code.
Value* Emitter::find_argument(KernelArgument::Kind kind, int64_t at, int64_t value) const {
  for (size_t i = 0; i < spec_.arguments.size(); ++i) {
    const KernelArgument& argument = spec_.arguments[i];
    if (argument.kind == kind && argument.at == at && argument.value == value) {
      return arguments_[i];
    }
  }
  return nullptr;
}

Value* Emitter::extent(size_t loop) const {
  int64_t most = spec_.extent(loop);
  Value* argument = find_argument(KernelArgument::Kind::kExtent, static_cast<int64_t>(loop), most);
  return argument ? argument : i64(most);
}

Value* Emitter::stride(size_t loop, int64_t value) const {
  Value* argument = find_argument(KernelArgument::Kind::kStride, static_cast<int64_t>(loop), value);
  return argument ? argument : i64(value);
}

// Advances all addresses to `index` of a loop, numbered in the order outer, mid, inner.
void Emitter::move(size_t loop, Value* index) {
  for (size_t i = 0; i < origin_.addresses.size(); ++i) {
    const KernelBuffer& b = spec_.buffers[i];
    if (int64_t number = b.strides[loop]) {
      origin_.addresses[i] = element_address(scalar(), b.dtype, origin_.addresses[i], ir_.CreateMul(index, stride(loop, number)));
    }
  }
  for (size_t i = 0; i < origin_.indices.size(); ++i) {
    if (int64_t number = spec_.indices[i][loop]) {
      origin_.indices[i] = ir_.CreateAdd(origin_.indices[i], ir_.CreateMul(index, stride(loop, number)));
    }
  }
}

void Emitter::enter_row(Value* row) {
  for (size_t d = spec_.outer.size(); d-- > 0;) {
    if (spec_.outer[d] > 1) {
      move(d, d ? ir_.CreateURem(row, extent(d)) : row);
      row = d ? ir_.CreateUDiv(row, extent(d)) : row;
    }
  }
  emit_scalars(0);
}

void Emitter::emit_scalars(int stage) {
  Vec one = scalar();
  emit_values(stages_.row_values[stage], {one, nullptr, nullptr});
  emit_stores(stages_.row_stores[stage], {one, nullptr, nullptr});
}

void Emitter::emit_values(const std::vector<int>& ids, const Position& p) {
  for (int id : ids) {
    values_[id] = emit_value(id, p);
  }
}

void Emitter::emit_stores(const std::vector<int>& ids, const Position& p) {
  for (int id : ids) {
    const Instr& instr = spec_.body[id];
    const KernelBuffer& b = spec_.buffers[instr.index];
    int64_t number = p.index ? b.strides.back() : 0;
    Value* step = inner_stride(number);
    Value* first = origin_.addresses[instr.index];
    Value* address = number ? element_address(p.v, b.dtype, first, ir_.CreateMul(p.index, step)) : first;
    emit_store(p.v, b.dtype, operand_type(instr), operand(instr.args[0], p.v), address, step, p.mask);
  }
}

Value* Emitter::operand(int id, const Vec& v) const {
  XLA_ASSERT(values_[id], "instruction ", id, " (", prim_name(spec_.body[id].prim), ") is used before it is computed");
  return v.splat(values_[id]);
}

DType Emitter::operand_type(const Instr& instr) const {
  return spec_.body[instr.args[instr.prim == Prim::kSelect ? 1 : 0]].dtype;
}

Value* Emitter::emit_value(int id, const Position& p) {
  const Instr& instr = spec_.body[id];
  switch (instr.prim) {
    case Prim::kConstant:
      return emit_constant(id);
    case Prim::kScalar:
      return emit_slot(static_cast<size_t>(instr.index), is_float(spec_.scalars[instr.index]) ? DType::F64 : DType::I64, instr.dtype);
    case Prim::kLoad:
      return emit_load_at(instr, p);
    case Prim::kIota:
      return emit_convert(p.v, DType::I64, instr.dtype, emit_index(instr.index, p));
    case Prim::kRandomBits:
      return emit_random(instr, p);
    default:
      break;
  }
  llvm::SmallVector<Value*, 3> args;
  for (int32_t a : instr.args) {
    args.push_back(operand(a, p.v));
  }
  return emit_primitive(p.v, instr.prim, operand_type(instr), instr.dtype, args);
}

Value* Emitter::emit_load_at(const Instr& instr, const Position& p) {
  const KernelBuffer& b = spec_.buffers[instr.index];
  int64_t number = p.index ? b.strides.back() : 0;
  if (number == 0) {
    return emit_load(scalar(), b.dtype, origin_.addresses[instr.index], i64(0), nullptr);
  }
  Value* step = inner_stride(number);
  Value* address = element_address(p.v, b.dtype, origin_.addresses[instr.index], ir_.CreateMul(p.index, step));
  return emit_load(p.v, b.dtype, address, step, p.mask);
}

// The value of an affine function of the loop indices.
Value* Emitter::emit_index(int number, const Position& p) {
  int64_t last = p.index ? spec_.indices[number].back() : 0;
  if (last == 0) {
    return p.v.splat(origin_.indices[number]);
  }
  Value* step = inner_stride(last);
  Value* first = ir_.CreateAdd(origin_.indices[number], ir_.CreateMul(p.index, step));
  return ir_.CreateAdd(p.v.splat(first), p.v.ramp(step));
}

// Words of one block come from equal instructions; the passes keep one copy.
Value* Emitter::emit_random(const Instr& instr, const Position& p) {
  Value* seed = operand(instr.args[0], scalar());
  Value* offset = operand(instr.args[1], scalar());
  Value* word = emit_philox(p.v, seed, offset, emit_index(instr.index, p), static_cast<unsigned>(instr.lane));
  return ir_.CreateIntCast(word, p.v.type(instr.dtype), false);
}

Value* Emitter::emit_constant(int id) {
  const Instr& instr = spec_.body[id];
  Vec one = scalar();
  if (Value* bits = find_argument(KernelArgument::Kind::kConstant, id, 0)) {
    return is_float(instr.dtype) ? emit_convert(one, DType::F64, instr.dtype, one.bits(bits, DType::F64))
                                 : emit_convert(one, DType::I64, instr.dtype, bits);
  }
  return is_float(instr.dtype) ? one.number(instr.dtype, std::bit_cast<double>(instr.imm))
                               : one.integer(instr.dtype, static_cast<int64_t>(instr.imm));
}

Value* Emitter::emit_slot(size_t slot, DType slot_type, DType to) const {
  Vec one = scalar();
  Value* address = ir_.CreateConstGEP1_64(ir_.getInt64Ty(), function_->getArg(1), slot);
  return emit_convert(one, slot_type, to, ir_.CreateLoad(one.type(slot_type), address));
}

bool Emitter::prefers_one_body(const Sweep& sweep) const {
  // The range of a kernel without outer loops may end anywhere.
  bool anywhere = !llvm::isa<llvm::Constant>(inner_extent()) || (spec_.form == KernelForm::kPointwise && spec_.outer.empty());
  bool has_rest = anywhere || inner_ % wide_.width != 0;
  int64_t few = isa_.avx512 ? kFewVectors * kVectorElements : wide_.width;
  return has_rest && (inner_ < few || sweep.values.size() > kLargeBody);
}

Carried Emitter::neutral_values(const Accumulators& acc) const {
  Carried values;
  for (int id : acc.reduces) {
    values.append(acc.copies, neutral(wide_, spec_.body[id].prim, spec_.body[id].dtype));
  }
  return values;
}

Carried Emitter::combined(const Accumulators& acc, llvm::ArrayRef<Value*> a, llvm::ArrayRef<Value*> b) const {
  Carried values;
  for (size_t i = 0; i < a.size(); ++i) {
    const Instr& instr = spec_.body[acc.reduces[i / acc.copies]];
    values.push_back(combine(wide_, instr.prim, instr.dtype, a[i], b[i]));
  }
  return values;
}

Value* Emitter::reduced(int id, Value* accumulator, const Position& p) const {
  const Instr& instr = spec_.body[id];
  Value* x = operand(instr.args[0], p.v);
  if (p.mask) {
    x = ir_.CreateSelect(p.mask, x, neutral(p.v, instr.prim, instr.dtype));
  }
  return combine(p.v, instr.prim, instr.dtype, accumulator, x);
}

// The number of elements in one turn, for decisions on the form of a loop.
static int64_t unit_of(int64_t step) {
  return step == 1 ? 1 : kVectorElements;
}

Carried Emitter::accumulate(
    const Accumulators& acc, Value* last, int64_t most, int64_t step, llvm::ArrayRef<Value*> totals, LoopBody body) {
  if (acc.reduces.empty() || most <= kShortLoop * unit_of(step)) {
    return emit_loop(ir_, i64(0), last, step, totals, body);
  }
  return combined(acc, totals, accumulate_tree(acc, i64(0), last, most, step, body));
}

// At each level, up to kFan sums of the level below are added.
Carried Emitter::accumulate_tree(const Accumulators& acc, Value* first, Value* last, int64_t length, int64_t step, LoopBody body) {
  int64_t part = kFan * unit_of(step);
  if (length <= part) {
    return emit_loop(ir_, first, last, step, neutral_values(acc), body);
  }
  while (part * kFan < length) {
    part *= kFan;
  }
  return emit_loop(ir_, first, last, part, neutral_values(acc), [&](Value* begin, llvm::ArrayRef<Value*> totals) {
    Value* end = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, ir_.CreateAdd(begin, i64(part)), last);
    return combined(acc, totals, accumulate_tree(acc, begin, end, part, step, body));
  });
}

Carried Emitter::over_mid(const Accumulators& acc, llvm::ArrayRef<Value*> totals, CarriedBody body, size_t d) {
  if (d == spec_.mid.size()) {
    return body(totals);
  }
  Origin origin = save();
  Value* step = d ? mid_step_ : i64(0);
  size_t loop = spec_.outer.size() + d;
  Carried result = accumulate(acc, extent(loop), spec_.mid[d], 1, totals, [&](Value* index, llvm::ArrayRef<Value*> carried) {
    move(loop, index);
    mid_step_ = ir_.CreateAdd(ir_.CreateMul(step, extent(loop)), index);
    Carried next = over_mid(acc, carried, body, d + 1);
    restore(origin);
    return next;
  });
  mid_step_ = step;
  return result;
}

} // namespace torch_xla::cpu
