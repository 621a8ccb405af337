// Loads and stores: stride 1 is a vector load, -1 a reversed one; others gather and scatter.
#include "engine/cpu/codegen/memory.h"

#include "engine/cpu/codegen/convert.h"

namespace torch_xla::cpu {

namespace {

llvm::Align alignment(DType t) {
  return llvm::Align(item_size(t));
}

Value* reverse(const Vec& v, Value* x) {
  llvm::SmallVector<int, 16> lanes;
  for (int i = v.width; i-- > 0;) {
    lanes.push_back(i);
  }
  return v.ir.CreateShuffleVector(x, lanes);
}

// Lane 0 is always on, so lanes that are off may read its element: then the 8- and 16-bit types, for which there is no gather instruction,
// need no branches.
Value* gather(const Vec& v, DType t, Value* address, Value* stride, Value* mask) {
  auto& ir = v.ir;
  Value* index = v.ramp(stride);
  if (mask) {
    index = ir.CreateSelect(mask, index, llvm::Constant::getNullValue(index->getType()));
  }
  Value* addresses = ir.CreateGEP(memory_type(v, t), address, index);
  return ir.CreateMaskedGather(v.widen(memory_type(v, t)), addresses, alignment(t));
}

bool is_constant(Value* stride, int64_t number) {
  auto* constant = find_splat<llvm::ConstantInt>(stride);
  return constant && constant->getSExtValue() == number;
}

} // namespace

Value* element_address(const Vec& v, DType t, Value* base, Value* index) {
  return v.ir.CreateGEP(memory_type(v, t), base, index);
}

Value* emit_load(const Vec& v, DType t, Value* address, Value* stride, Value* mask) {
  auto& ir = v.ir;
  llvm::Type* type = v.widen(memory_type(v, t));
  if (v.width == 1) {
    return unpack(v, t, ir.CreateAlignedLoad(type, address, alignment(t)));
  }
  if (is_constant(stride, 1)) {
    Value* raw = mask ? static_cast<Value*>(ir.CreateMaskedLoad(type, address, alignment(t), mask, llvm::Constant::getNullValue(type)))
                      : ir.CreateAlignedLoad(type, address, alignment(t));
    return unpack(v, t, raw);
  }
  if (is_constant(stride, -1) && !mask) {
    Value* lowest = element_address(v, t, address, ir.getInt64(1 - v.width));
    return unpack(v, t, reverse(v, ir.CreateAlignedLoad(type, lowest, alignment(t))));
  }
  return unpack(v, t, gather(v, t, address, stride, mask));
}

void emit_store(const Vec& v, DType t, DType from, Value* x, Value* address, Value* stride, Value* mask) {
  auto& ir = v.ir;
  Value* raw = pack(v, t, from, x);
  if (v.width == 1) {
    ir.CreateAlignedStore(raw, address, alignment(t));
  } else if (is_constant(stride, 0)) {
    ir.CreateAlignedStore(ir.CreateExtractElement(raw, uint64_t{0}), address, alignment(t));
  } else if (is_constant(stride, 1)) {
    mask ? static_cast<void>(ir.CreateMaskedStore(raw, address, alignment(t), mask))
         : static_cast<void>(ir.CreateAlignedStore(raw, address, alignment(t)));
  } else {
    Value* addresses = ir.CreateGEP(memory_type(v, t), address, v.ramp(stride));
    ir.CreateMaskedScatter(raw, addresses, alignment(t), mask);
  }
}

} // namespace torch_xla::cpu
