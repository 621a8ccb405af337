// Buffers of the CPU engine: a shared block of memory and the value's place in it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "engine/cpu/memory/kept_results.h"
#include "engine/cpu/memory/pool.h"
#include "engine/engine.h"

namespace torch_xla::cpu {

// Memory of a pool, or foreign memory that is released once, after its last use.
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
  bool is_of_pool() const {
    return pool_ != nullptr;
  }

 private:
  void* data_;
  Pool* pool_ = nullptr;
  std::function<void()> release_; // for foreign memory
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
  // Unique: no other buffer of the process has or had it.
  uint64_t number() const {
    return number_;
  }
  // Whether its contents never change: the owner of foreign memory may write it.
  bool is_constant() const {
    return block_->is_of_pool();
  }
  // Results kept for its contents; used by the runs of its device, one at a time.
  KeptResults& kept_results() {
    return kept_results_;
  }

 private:
  static inline std::atomic<uint64_t> count_{0};

  BlockRef block_;
  const uint64_t number_ = count_.fetch_add(1, std::memory_order_relaxed);
  KeptResults kept_results_;
};
using CpuBufferRef = std::shared_ptr<CpuBuffer>;

inline CpuBuffer& cpu_buffer(const EngineBufferRef& buffer) {
  return static_cast<CpuBuffer&>(*buffer);
}

} // namespace torch_xla::cpu
