// A fused kernel as data: the contract between scheduling, which writes it, and the LLVM code generator, which compiles it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/hash.h"
#include "core/inline_vec.h"
#include "ir/prim.h"

namespace torch_xla::cpu {

// The loop nest of a kernel is outer... x mid... x inner; the innermost loop is vectorized.
//   kPointwise  no reduction; mid is empty.
//   kRow        every reduction runs over (mid..., inner); its result is one value per outer index ("row value"). Element values may use
//               row values of reductions before them: the generator splits the body into stages, one sweep over the row each.
//   kColumn     every reduction runs over mid; its result is one value per (outer, inner) index ("column value"). Element values never use
//               column values; column values may be computed further and stored.
enum class KernelForm : uint8_t { kPointwise, kRow, kColumn };

// Elements [0, kColumnBlock) of the inner loop are one unit of work of a kColumn kernel.
constexpr int64_t kColumnBlock = 64;

// Strides are by loop, in the order outer, mid, inner: element index = sum(strides[d] * index of loop d).
struct KernelBuffer {
  DType dtype = DType::F32; // Bool is one byte, 0 or 1
  Dims strides;
};

// One value of the kernel's body, in SSA order. Operands are indices of earlier instructions.
struct Instr {
  Prim prim = Prim::kNone;
  DType dtype = DType::F32; // of the result; for kStore of the buffer. 16-bit floats appear in loads, stores and converts only
  InlineVec<int32_t, 3> args;
  // kLoad, kStore: index into buffers. kScalar: index into the scalar block. kIota: index into indices.
  // kRandomBits: index into indices (the linear element index, counter word 0); args = {seed, offset} (I64 row values); see also lane.
  int32_t index = -1;
  // kRandomBits: which of the four words of the philox block, 0 to 3.
  int32_t lane = 0;
  // kConstant: the bits of a double (floating types) or of an int64 (integers, Bool).
  uint64_t imm = 0;
};

// A number that a kernel's code takes as an argument, in an 8-byte slot after the scalars' slots: see kernel_structure.h.
struct KernelArgument {
  enum class Kind : uint8_t { kExtent, kStride, kConstant };
  Kind kind = Kind::kExtent;
  int32_t at = 0; // for a constant the instruction; else the loop, in the order outer, mid, inner
  // The placeholder in the spec. For an extent: an upper bound, or kAnyExtent; for an outer extent it says only whether there are many
  // rows. For a stride: all strides of the loop with this value are the argument.
  int64_t value = 0;
};

// Sums are float32 for float32 operands, as ATen's CPU kernels; the generator splits long sums (cascade), so the error is that of pairwise
// summation. Reductions of an empty range give the neutral element.
struct KernelSpec {
  KernelForm form = KernelForm::kPointwise;
  Dims outer; // extents of the parallel loops, slowest first; may be empty
  Dims mid; // extents of the sequential loops
  int64_t inner = 1; // extent of the vectorized loop
  std::vector<KernelBuffer> buffers; // read and written
  std::vector<DType> scalars; // the 8-byte slots hold a double for floating types, an int64 for the others
  std::vector<Dims> indices; // strides, for kIota and kRandomBits
  std::vector<Instr> body;
  std::vector<KernelArgument> arguments; // all other numbers are part of the code

  // Units of work that run() divides among threads:
  //   kPointwise with empty outer: elements of inner; kPointwise, kRow: product of outer; kColumn: product of outer * blocks of inner.
  int64_t units() const;
  size_t num_loops() const {
    return outer.size() + mid.size() + 1;
  }
  int64_t& extent(size_t loop);
  int64_t extent(size_t loop) const {
    return const_cast<KernelSpec*>(this)->extent(loop);
  }
  // Canonical text: equal text means equal code. Used as the cache key and in dumps.
  std::string text() const;
};

// buffers[i] points to the memory of KernelSpec::buffers[i] (its element 0; the offset in a larger memory is not part of the code);
// `scalars` are followed by the arguments. The function runs units [begin, end). In-place is allowed when a stored buffer has the same
// address function as a loaded one.
using KernelFn = void (*)(void* const* buffers, const uint64_t* scalars, int64_t begin, int64_t end);

// A compiled kernel. Its code lives as long as any copy of this object.
class Kernel {
 public:
  Kernel() = default; // none
  Kernel(const Hash128& hash, KernelFn fn, std::shared_ptr<const void> code, size_t bytes, bool is_new)
      : hash_(hash), fn_(fn), code_(std::move(code)), bytes_(bytes), is_new_(is_new) {}
  KernelFn fn() const {
    return fn_;
  }
  // Hash of the spec and of everything else that the code depends on: find_kernel() takes it.
  const Hash128& hash() const {
    return hash_;
  }
  size_t bytes() const { // size of the code; other kernels may share it
    return bytes_;
  }
  // Whether the code was generated for this kernel, not found in memory or on disk.
  bool is_new() const {
    return is_new_;
  }
  void operator()(void* const* buffers, const uint64_t* scalars, int64_t begin, int64_t end) const {
    fn_(buffers, scalars, begin, end);
  }

 private:
  Hash128 hash_;
  KernelFn fn_ = nullptr;
  std::shared_ptr<const void> code_;
  size_t bytes_ = 0;
  bool is_new_ = false;
};

// Compiles the kernel, or finds it among the live kernels or in the object cache on disk. Thread-safe. Never returns none; throws
// InternalError with LLVM's message, and UserError if memory is out.
Kernel compile_kernel(const KernelSpec& spec);
// The kernel of the spec if it is alive and compiled, else none. Thread-safe.
Kernel find_live_kernel(const KernelSpec& spec);
// Whether compile_kernel() would have nothing to compile. Thread-safe.
bool has_kernel(const KernelSpec& spec);
// The kernel with this hash, from copy kernels, live kernels or the object cache; or none. Thread-safe, throws as compile_kernel().
Kernel find_kernel(const Hash128& hash);

// LLVM IR and assembly of a kernel as text, for the debug ladder; not cached.
struct KernelListing {
  std::string llvm_ir;
  std::string assembly;
};
KernelListing list_kernel(const KernelSpec& spec);

// Directory of the object cache (see engine/object_cache.h); empty switches it off. Files are keyed by the kernel's text and kernel_host().
void set_kernel_cache_dir(const std::string& path, bool read_only = false);
// A hash of everything besides its text that a kernel's code depends on: the processor, LLVM's version and the sources of the code
// generator. Does not load LLVM.
const std::string& kernel_host();

struct KernelStats {
  int64_t compiled = 0; // by LLVM
  int64_t disk_hits = 0;
  int64_t memory_hits = 0;
  int64_t live = 0; // kernels with an owner
};
KernelStats kernel_stats();

} // namespace torch_xla::cpu
