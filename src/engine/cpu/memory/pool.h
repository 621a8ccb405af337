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

// Blocks are of size classes and 64-byte aligned. A freed small block waits for the next request of its class. A freed large block is
// joined with the free pages beside it at once, and the next one is cut from the run that fits best: programs keep tens of large blocks,
// all of different sizes, so memory kept by size would lie idle. The pool holds at most 5/4 of its highest use, plus 64 MB: above that,
// free memory goes back to the system before the pool asks for more.
//
// Thread-safe: one short lock per small class, taken inside heap_mutex_. In a forked child release() does nothing and
// allocate() throws, as another thread may have held a lock then.
class Pool {
 public:
  static Pool& get(int device); // one for each device, never destroyed
  // The pool of the block; null for other memory.
  static Pool* find(const void* data);

  explicit Pool(int device); // for get()
  // Throws UserError if memory is out, and in a forked child.
  void* allocate(size_t size);
  void release(void* data); // a block of this pool, or null
  // Gives all free memory back to the system, except slabs with a block in use.
  void empty_cache();
  // Sets the peaks to the present values.
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
    std::vector<char*> slabs; // memory of its blocks; guarded by mutex
  };
  static constexpr int kClasses = 8 * 40;
  static constexpr int kSmallClasses = 8 * 11; // up to 512 KB; larger sizes are whole pages

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
  std::mutex heap_mutex_; // guards heap_, except its counts, and highest_
  PageHeap heap_; // the number of a taken page: pool and class of its blocks, plus one
  std::array<SmallClass, kSmallClasses> classes_;
  PeakCount bytes_;
  int64_t highest_ = 0; // the highest peak before reset_peaks(); guarded by heap_mutex_
};

} // namespace torch_xla::cpu
