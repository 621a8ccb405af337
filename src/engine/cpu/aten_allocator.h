// Redirects what ATen allocates inside a library call to the engine's pool.
#pragma once

namespace torch_xla::cpu {

// While one lives, CPU tensors made by this thread take their memory from the pool.
class PoolRedirect {
 public:
  PoolRedirect();
  ~PoolRedirect();
  PoolRedirect(const PoolRedirect&) = delete;
  PoolRedirect& operator=(const PoolRedirect&) = delete;

 private:
  bool before_;
};

} // namespace torch_xla::cpu
