// Writes KernelSpecs in a few words, for the tests and the benchmark of the code generator.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "engine/cpu/kernel.h"

namespace torch_xla::cpu {

class SpecBuilder {
 public:
  SpecBuilder(KernelForm form, Dims outer, Dims mid, int64_t inner) {
    spec.form = form;
    spec.outer = outer;
    spec.mid = mid;
    spec.inner = inner;
  }

  // Strides of a dense tensor over all loops, and of the ones that vary with the outer, or the outer and inner loops only.
  Dims dense() const {
    Dims extents = loops();
    return contiguous_strides(extents);
  }
  Dims per_row() const {
    Dims strides = contiguous_strides(spec.outer);
    strides.resize(loops().size(), 0);
    return strides;
  }
  Dims per_column() const {
    Dims extents = spec.outer;
    extents.push_back(spec.inner);
    Dims packed = contiguous_strides(extents);
    Dims strides(loops().size(), 0);
    for (size_t d = 0; d < spec.outer.size(); ++d) {
      strides[d] = packed[d];
    }
    strides.back() = 1;
    return strides;
  }
  // Varies with the inner loop only.
  Dims per_inner() const {
    Dims strides(loops().size(), 0);
    strides.back() = 1;
    return strides;
  }

  int load(DType t, const Dims& strides) {
    return add(Prim::kLoad, t, {}, buffer(t, strides));
  }
  void store(int x, DType t, const Dims& strides) {
    add(Prim::kStore, t, {x}, buffer(t, strides));
  }
  int scalar(DType t) {
    spec.scalars.push_back(t);
    return add(Prim::kScalar, t, {}, static_cast<int32_t>(spec.scalars.size()) - 1);
  }
  int iota(DType t, const Dims& strides) {
    spec.indices.push_back(strides);
    return add(Prim::kIota, t, {}, static_cast<int32_t>(spec.indices.size()) - 1);
  }
  int random(int seed, int offset, const Dims& strides, int lane) {
    spec.indices.push_back(strides);
    int id = add(Prim::kRandomBits, DType::I32, {seed, offset}, static_cast<int32_t>(spec.indices.size()) - 1);
    spec.body.back().lane = lane;
    return id;
  }
  int constant(DType t, double v) {
    int id = add(Prim::kConstant, t, {});
    spec.body.back().imm = is_float(t) ? std::bit_cast<uint64_t>(v) : static_cast<uint64_t>(static_cast<int64_t>(v));
    return id;
  }
  int op(Prim prim, std::initializer_list<int32_t> args, DType result = DType::Undefined) {
    DType operand = spec.body[args.begin()[prim == Prim::kSelect ? 1 : 0]].dtype;
    return add(prim, result != DType::Undefined ? result : gives_bool(prim) ? DType::Bool : operand, args);
  }

  // Runs all units on this thread.
  void run(std::vector<void*> buffers, std::vector<uint64_t> scalars = {}) const {
    compile_kernel(spec)(buffers.data(), scalars.data(), 0, spec.units());
  }

  KernelSpec spec;

 private:
  Dims loops() const {
    Dims extents = spec.outer;
    for (int64_t d : spec.mid) {
      extents.push_back(d);
    }
    extents.push_back(spec.inner);
    return extents;
  }
  int32_t buffer(DType t, const Dims& strides) {
    spec.buffers.push_back({t, strides});
    return static_cast<int32_t>(spec.buffers.size()) - 1;
  }
  int add(Prim prim, DType t, std::initializer_list<int32_t> args, int32_t index = -1) {
    Instr instr;
    instr.prim = prim;
    instr.dtype = t;
    for (int32_t a : args) {
      instr.args.push_back(a);
    }
    instr.index = index;
    spec.body.push_back(instr);
    return static_cast<int>(spec.body.size()) - 1;
  }
};

} // namespace torch_xla::cpu
