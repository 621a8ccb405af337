// Buffers of the CPU engine: a shared block of memory and where the value lies in it.
#pragma once

#include <functional>
#include <memory>

#include "engine/cpu/memory/pool.h"
#include "engine/engine.h"

namespace torch_xla::cpu {

// Memory of a pool, or of somebody else with one release at the end of its last user.
class Block {
 public:
  Block(Pool& pool, size_t bytes) : data_(pool.allocate(bytes)), pool_(&pool) {}
  Block(void* data, std::function<void()> release) : data_(data), release_(std::move(release)) {}
  ~Block() {
    pool_ ? pool_->release(data_) : release_();
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const {
    return data_;
  }

 private:
  void* data_;
  Pool* pool_ = nullptr;
  std::function<void()> release_; // where there is no pool
};
using BlockRef = std::shared_ptr<Block>;

class CpuBuffer final : public EngineBuffer {
 public:
  CpuBuffer(Type type, Dims strides, int device, BlockRef block)
      : EngineBuffer(std::move(type), std::move(strides), device), block_(std::move(block)) {}
  void* host_pointer() const override {
    return block_->data();
  }
  bool sole_owner() const override {
    return block_.use_count() == 1;
  }
  const BlockRef& block() const {
    return block_;
  }

 private:
  BlockRef block_;
};

} // namespace torch_xla::cpu
