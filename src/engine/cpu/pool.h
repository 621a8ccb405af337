// Memory pool of the CPU engine: first touch of fresh memory is the largest single cost on virtual machines, so memory is kept and reused.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace torch_xla::cpu {

// Blocks are 64-byte aligned; those of 4 MB or more lie on 2 MB pages of their own. Thread-safe: one short lock per size class. After fork
// the child's calls to release do nothing, as another thread may have held a lock then.
class Pool {
 public:
  static Pool& get(); // never destroyed

  // Throws UserError when memory is out.
  void* allocate(size_t size);
  void release(void* data);
  bool contains(const void* data) const {
    auto p = static_cast<const char*>(data);
    return p >= base_ && p < base_ + reserved_;
  }
  // Gives the large free blocks' memory back to the system.
  void empty_cache() {
    give_back(reserved_);
  }

  int64_t bytes_used() const {
    return used_.load(std::memory_order_relaxed);
  }
  int64_t peak_bytes_used() const {
    return peak_.load(std::memory_order_relaxed);
  }

 private:
  Pool();

  struct SizeClass {
    std::mutex mutex;
    std::vector<char*> free; // the last one freed is the first one taken; guarded by mutex
    size_t bare = 0; // so many of the first of `free` have given their pages back; guarded by mutex
    char* next = nullptr; // rest of the slab that is being carved; guarded by mutex
    char* end = nullptr;
  };
  static constexpr int kClasses = 8 * 40;

  char* take_free(int index);
  int class_of_block(const void* data) const;
  char* carve(SizeClass& size_class, int index, size_t size);
  char* map_chunks(size_t bytes, int index, size_t huge_bytes);
  void give_back(size_t bytes);
  void add_used(int64_t bytes);

  char* base_ = nullptr; // reserved addresses, made accessible chunk by chunk
  size_t reserved_ = 0;
  std::mutex map_mutex_;
  size_t mapped_ = 0; // guarded by map_mutex_
  std::vector<uint16_t> chunk_class_; // by 2 MB chunk: its blocks' size class; written once under map_mutex_, before the block is given out
  std::array<SizeClass, kClasses> classes_;
  std::atomic<int64_t> used_{0};
  std::atomic<int64_t> peak_{0};
};

} // namespace torch_xla::cpu
