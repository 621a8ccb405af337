// Redirects ATen's allocations inside a library call to a device's pool.
#pragma once

#include "engine/cpu/memory/pool.h"

namespace torch_xla::cpu {

// While one lives, CPU tensors made by this thread take their memory from the pool, or from ATen's allocator if the pool is null.
class PoolRedirect {
 public:
  explicit PoolRedirect(Pool* pool);
  ~PoolRedirect();
  PoolRedirect(const PoolRedirect&) = delete;
  PoolRedirect& operator=(const PoolRedirect&) = delete;

 private:
  Pool* before_;
};

// While one lives in a redirect, the next tensor of this size that the thread makes lies at the address. The memory outlives the tensor.
class Placement {
 public:
  Placement(void* data, size_t bytes);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;
};

} // namespace torch_xla::cpu
