// Buffers of the CPU engine: a shared block of memory and where the value lies in it.
#pragma once

#include <functional>
#include <memory>

#include "engine/cpu/pool.h"
#include "engine/engine.h"

namespace torch_xla::cpu {

// Memory with one release at the end of its last user. `release` is empty for memory of the pool.
class Block {
 public:
  explicit Block(size_t bytes) : data_(Pool::get().allocate(bytes)) {}
  Block(void* data, std::function<void()> release) : data_(data), release_(std::move(release)) {}
  ~Block() {
    if (release_) {
      release_();
    } else {
      Pool::get().release(data_);
    }
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const {
    return data_;
  }

 private:
  void* data_;
  std::function<void()> release_;
};
using BlockRef = std::shared_ptr<Block>;

class CpuBuffer final : public EngineBuffer {
 public:
  CpuBuffer(Type type, Dims strides, BlockRef block) : EngineBuffer(std::move(type), std::move(strides)), block_(std::move(block)) {}
  void* host_pointer() const override {
    return block_->data();
  }
  bool sole_owner() const override {
    return block_.use_count() == 1;
  }
  const BlockRef& block() const {
    return block_;
  }
  BlockRef take_block() {
    return std::move(block_);
  }

 private:
  BlockRef block_;
};

} // namespace torch_xla::cpu
