// Redirects what ATen allocates inside a library call to a device's pool.
#pragma once

#include "engine/cpu/memory/pool.h"

namespace torch_xla::cpu {

// While one lives, CPU tensors made by this thread take their memory from the pool; from where they do elsewhere if that is null.
class PoolRedirect {
 public:
  explicit PoolRedirect(Pool* pool);
  ~PoolRedirect();
  PoolRedirect(const PoolRedirect&) = delete;
  PoolRedirect& operator=(const PoolRedirect&) = delete;

 private:
  Pool* before_;
};

// While one lives in a redirect, the first tensor of so many bytes that this thread makes lies at the address, which outlives the tensor.
class Placement {
 public:
  Placement(void* data, size_t bytes);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;
};

} // namespace torch_xla::cpu
