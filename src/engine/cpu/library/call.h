// One call of an ATen CPU kernel, prepared when the program is compiled.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/cpu/memory/cpu_buffer.h"
#include "engine/cpu/place.h"

namespace torch_xla::cpu {

// Memory of one result of a call: given by the caller, or adopted from what ATen allocated (then `block` owns it).
struct ResultMemory {
  void* data = nullptr;
  BlockRef block;
};

// True when the node's call writes its results into memory of the caller, else its results are adopted. `may_write_into` false: only where
// no form of ATen's computes it. Throws as LibraryCall's constructor.
bool writes_into(const LaidOutGraph& laid_out, const Node& node, bool may_write_into);

// Not thread-safe: the operands' tensors are made once and get new addresses at each run.
class LibraryCall {
 public:
  // Throws InternalError when ATen has no such operation or the attributes do not fit its schema.
  LibraryCall(const LaidOutGraph& laid_out, const Node& node, bool may_write_into);
  ~LibraryCall();
  LibraryCall(LibraryCall&&) noexcept;

  // As the function above says; then ResultMemory::data must be set for each result.
  bool writes_into() const;
  // Addresses of element 0, parallel to the node's operands; ignored for None. Results are parallel to the node's; undefined ones stay
  // empty. What ATen allocates comes from the pool. Throws StepError with ATen's message.
  void run(Pool& pool, std::span<void* const> operands, std::span<ResultMemory> results);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Strided copy of equal element types by ATen.
void copy_strided(DType dtype, const Dims& dims, void* to, const Dims& to_strides, const void* from, const Dims& from_strides);

} // namespace torch_xla::cpu
