// Redirects what ATen allocates inside a library call to a device's pool.
#pragma once

#include "engine/cpu/memory/pool.h"

namespace torch_xla::cpu {

// While one lives, CPU tensors made by this thread take their memory from the pool.
class PoolRedirect {
 public:
  explicit PoolRedirect(Pool& pool);
  ~PoolRedirect();
  PoolRedirect(const PoolRedirect&) = delete;
  PoolRedirect& operator=(const PoolRedirect&) = delete;

 private:
  Pool* before_;
};

} // namespace torch_xla::cpu
