// Buffers of the CPU engine: a shared block of memory and the value's place in it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "engine/cpu/memory/kept_results.h"
#include "engine/cpu/memory/parts_away.h"
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
  // The memory, with all that it holds. Throws UserError (OutOfMemory) where parts are away and find no room.
  void* data() const {
    if (away_.any()) {
      away_.bring_back();
    }
    return data_;
  }
  // Where the memory lies. Parts of what it holds may be away.
  char* address() const {
    return static_cast<char*>(data_);
  }
  PartsAway& away() const {
    return away_;
  }
  bool is_of_pool() const {
    return pool_ != nullptr;
  }

 private:
  void* data_;
  Pool* pool_ = nullptr;
  std::function<void()> release_; // for foreign memory
  mutable PartsAway away_;
};
using BlockRef = std::shared_ptr<Block>;

class CpuBuffer final : public EngineBuffer {
 public:
  CpuBuffer(Type type, Dims strides, int device, BlockRef block)
      : EngineBuffer(std::move(type), std::move(strides), device), block_(std::move(block)) {}
  // From then on all of it stays there.
  void* host_pointer() const override {
    is_shown_ = true;
    return block_->data();
  }
  // Gives pages of a part of its memory back to the system until Block::data() is called; nothing if the host knows the address. No other
  // buffer has the block.
  void put_away(char* part, size_t bytes, PartsAway::Fill fill) {
    block_->away().add(part, bytes, std::move(fill), [this] { return !is_shown_; });
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
  mutable std::atomic<bool> is_shown_{false};
  const uint64_t number_ = count_.fetch_add(1, std::memory_order_relaxed);
  KeptResults kept_results_;
};
using CpuBufferRef = std::shared_ptr<CpuBuffer>;

inline CpuBuffer& cpu_buffer(const EngineBufferRef& buffer) {
  return static_cast<CpuBuffer&>(*buffer);
}

} // namespace torch_xla::cpu
