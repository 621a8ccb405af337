// Loads and stores: stride 1 is a vector load, -1 a reversed one; short strides load all elements between and pick the lanes; others are
// loads and stores of single elements.
#include "engine/cpu/codegen/memory.h"

#include "engine/cpu/codegen/convert.h"
#include "engine/cpu/cost.h"

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

// Lane 0 is always active, so inactive lanes may read its element: then the 8- and 16-bit types, which have no gather instruction, need no
// branches.
Value* gather(const Vec& v, DType t, Value* address, Value* stride, Value* mask) {
  auto& ir = v.ir;
  Value* index = v.ramp(stride);
  if (mask) {
    index = ir.CreateSelect(mask, index, llvm::Constant::getNullValue(index->getType()));
  }
  Value* addresses = ir.CreateGEP(memory_type(v, t), address, index);
  return ir.CreateMaskedGather(v.widen(memory_type(v, t)), addresses, alignment(t));
}

Value* load_vector(const Vec& v, DType t, Value* address, Value* mask) {
  llvm::Type* type = v.widen(memory_type(v, t));
  return mask ? static_cast<Value*>(v.ir.CreateMaskedLoad(type, address, alignment(t), mask, llvm::Constant::getNullValue(type)))
              : v.ir.CreateAlignedLoad(type, address, alignment(t));
}

// Mask of the elements between the active lanes' elements, from number `first` on: the first ones are active.
Value* mask_between(const Vec& v, Value* mask, int stride, int first) {
  auto& ir = v.ir;
  Value* bits = ir.CreateBitCast(mask, ir.getIntNTy(static_cast<unsigned>(v.width)));
  Value* lanes = ir.CreateZExt(ir.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, bits), ir.getInt64Ty());
  Value* elements = ir.CreateSub(ir.CreateMul(lanes, ir.getInt64(stride)), ir.getInt64(stride - 1));
  return v.first_lanes(ir.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, elements, ir.getInt64(first)));
}

// Loads all elements from the first lane's to the last one's as vectors, and picks the lanes. The last vector ends with the last lane's
// element, as there may be no memory behind it.
Value* load_between(const Vec& v, DType t, Value* address, int stride, Value* mask) {
  auto& ir = v.ir;
  Value* result = nullptr;
  for (int part = 0; part < stride; ++part) {
    int first = mask || part + 1 < stride ? part * v.width : stride * (v.width - 1) + 1 - v.width;
    Value* from = element_address(v, t, address, ir.getInt64(first));
    Value* there = mask ? mask_between(v, mask, stride, first) : nullptr;
    Value* loaded = load_vector(v, t, from, there);
    llvm::SmallVector<int, 16> lanes;
    for (int lane = 0; lane < v.width; ++lane) {
      int at = stride * lane - first;
      bool is_here = at >= 0 && at < v.width;
      lanes.push_back(is_here ? at + (result ? v.width : 0) : result ? lane : llvm::PoisonMaskElem);
    }
    result = result ? ir.CreateShuffleVector(result, loaded, lanes) : ir.CreateShuffleVector(loaded, lanes);
  }
  return result;
}

Value* load_each(const Vec& v, DType t, Value* address, Value* stride) {
  auto& ir = v.ir;
  llvm::Type* lane_type = memory_type(v, t);
  Value* result = llvm::PoisonValue::get(v.widen(lane_type));
  for (int lane = 0; lane < v.width; ++lane) {
    Value* from = element_address(v, t, address, ir.CreateMul(stride, ir.getInt64(lane)));
    result = ir.CreateInsertElement(result, ir.CreateAlignedLoad(lane_type, from, alignment(t)), static_cast<uint64_t>(lane));
  }
  return result;
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
  if (v.width == 1) {
    return unpack(v, t, ir.CreateAlignedLoad(memory_type(v, t), address, alignment(t)));
  }
  if (is_constant(stride, 1)) {
    return unpack(v, t, load_vector(v, t, address, mask));
  }
  if (is_constant(stride, -1) && !mask) {
    Value* lowest = element_address(v, t, address, ir.getInt64(1 - v.width));
    return unpack(v, t, reverse(v, load_vector(v, t, lowest, nullptr)));
  }
  const bool masks_are_cheap = v.isa.avx512 || item_size(t) >= 4; // else each lane is a branch
  for (int between = 2; between <= kShortStride; ++between) {
    if (is_constant(stride, between) && (!mask || masks_are_cheap)) {
      return unpack(v, t, load_between(v, t, address, between, mask));
    }
  }
  return unpack(v, t, mask ? gather(v, t, address, stride, mask) : load_each(v, t, address, stride));
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
