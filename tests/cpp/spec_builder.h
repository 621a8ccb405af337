// Writes KernelSpecs in a few words, for the tests and the benchmark of the code generator.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/cpu/kernel_structure.h"

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
  void run_once(std::vector<void*> buffers, std::vector<uint64_t> scalars = {}) const {
    compile_kernel(spec)(buffers.data(), scalars.data(), 0, spec.units());
  }
  // As run_once(), after the code that takes all numbers as arguments, whose results must be the same bits.
  void run(std::vector<void*> buffers, std::vector<uint64_t> scalars = {}) const {
    Memory before = read_stored(buffers);
    ChosenKernel general = with_arguments(spec, true);
    std::vector<uint64_t> all = scalars;
    all.insert(all.end(), general.arguments.begin(), general.arguments.end());
    compile_kernel(general.spec)(buffers.data(), all.data(), 0, spec.units());
    Memory results = read_stored(buffers);
    for (auto& [address, bytes] : before) {
      std::memcpy(address, bytes.data(), bytes.size());
    }
    run_once(buffers, scalars);
    EXPECT_TRUE(read_stored(buffers) == results) << general.spec.text();
  }

  KernelSpec spec;

 private:
  using Memory = std::vector<std::pair<char*, std::string>>;

  // What the kernel may write, from the lowest to the highest address of each buffer.
  Memory read_stored(const std::vector<void*>& buffers) const {
    Memory memory;
    for (const Instr& instr : spec.body) {
      if (instr.prim != Prim::kStore || spec.units() == 0) {
        continue;
      }
      auto size = static_cast<int64_t>(item_size(instr.dtype));
      int64_t lowest = 0, highest = size;
      for (size_t loop = 0; loop < spec.num_loops(); ++loop) {
        int64_t last = spec.buffers[instr.index].strides[loop] * std::max<int64_t>(spec.extent(loop) - 1, 0) * size;
        (last < 0 ? lowest : highest) += last;
      }
      if (!buffers[instr.index]) {
        continue; // of no elements
      }
      char* address = static_cast<char*>(buffers[instr.index]) + lowest;
      memory.emplace_back(address, std::string(address, static_cast<size_t>(highest - lowest)));
    }
    return memory;
  }

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
