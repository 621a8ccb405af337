// Memory pools of the CPU engine: first touch of fresh memory is the largest single cost on virtual machines, so memory is kept and reused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/cpu/memory/page_heap.h"
#include "engine/memory_count.h"

namespace torch_xla::cpu {

// Blocks are of size classes and 64-byte aligned. A small block that is freed waits for the next one of its class. A large one is joined
// with the free pages beside it at once, and the next one is cut from where it fits best: programs keep tens of large blocks of as many
// sizes, so that memory kept by size would lie idle. What the pool holds stays below 5/4 of the most that was ever in use, and 64 MB:
// beyond that, free memory goes back to the system before more is asked for.
//
// Thread-safe: one short lock per small class, taken inside heap_mutex_. In a forked child release() does nothing and
// allocate() throws, as another thread may have held a lock then.
class Pool {
 public:
  static Pool& get(int device); // one for each device, never destroyed
  // The pool that the block is of; null for other memory.
  static Pool* find(const void* data);

  explicit Pool(int device); // for get()
  // Throws UserError when memory is out and in a forked child.
  void* allocate(size_t size);
  void release(void* data); // a block of this pool, or null
  // Gives all free memory back to the system, but that of slabs with a block in use.
  void empty_cache();
  // What is held now is the peak.
  void reset_peaks();

  int64_t bytes_used() const {
    return bytes_.used();
  }
  int64_t peak_bytes_used() const {
    return bytes_.peak();
  }
  // In use, or kept.
  int64_t bytes_reserved() const {
    return static_cast<int64_t>(heap_.mapped());
  }
  int64_t peak_bytes_reserved() const {
    return static_cast<int64_t>(heap_.peak_mapped());
  }

 private:
  struct SmallClass {
    std::mutex mutex;
    std::vector<char*> free; // the last one freed is the first one taken; guarded by mutex
    std::vector<char*> slabs; // that its blocks are cut from; guarded by mutex
  };
  static constexpr int kClasses = 8 * 40;
  static constexpr int kSmallClasses = 8 * 11; // up to 512 KB; the sizes of those above are whole pages

  char* take_small(int index);
  char* take_large(int index);
  char* take_free(int index);
  char* refill(int index);
  char* take_pages(size_t bytes, int index);
  bool find_room(size_t bytes);
  void collect_slabs();
  void collect_slabs(int index);
  void make_room(size_t bytes);
  void report(const void* data, int64_t bytes) const;
  static int class_of_block(const void* data) {
    return (page_map().get(data) - 1) % kClasses;
  }

  const int device_;
  std::mutex heap_mutex_; // guards heap_, but its counts, and highest_
  PageHeap heap_; // the number of a taken page is that of the pool and its blocks' class, and one
  std::array<SmallClass, kSmallClasses> classes_;
  PeakCount bytes_;
  int64_t highest_ = 0; // of its peaks before reset_peaks(); guarded by heap_mutex_
};

} // namespace torch_xla::cpu
