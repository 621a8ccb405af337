// Pages of 64 KB from the system: adjacent free pages form runs, and any part of a run can be taken or given back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace torch_xla::cpu {

constexpr size_t kPage = size_t{64} << 10;

// A number for each page of the process's address space, 0 at first. Any thread; the owner of a page writes its number before it passes the
// address on.
class PageMap {
 public:
  uint16_t get(const void* data) const {
    auto page = reinterpret_cast<uintptr_t>(data) / kPage;
    const Leaf* leaf = page / kLeafPages < kLeaves ? leaves_[page / kLeafPages].load(std::memory_order_acquire) : nullptr;
    return leaf ? leaf->numbers[page % kLeafPages].load(std::memory_order_relaxed) : 0;
  }
  // Throws std::bad_alloc.
  void set(char* data, size_t bytes, uint16_t number);

 private:
  static constexpr size_t kLeafPages = 1 << 13;
  static constexpr size_t kLeaves = (size_t{1} << 48) / kPage / kLeafPages;
  struct Leaf {
    std::atomic<uint16_t> numbers[kLeafPages];
  };

  Leaf& get_leaf(size_t index);

  std::atomic<Leaf*> leaves_[kLeaves] = {};
};
// The map of the process. Callers of PageHeap number their pages; pages returned to the system have 0.
PageMap& page_map(); // never destroyed

// The caller holds a lock. Sizes are in bytes, whole pages.
class PageHeap {
 public:
  // Takes (part of) the smallest free run that is large enough; null if there is none.
  char* take(size_t bytes);
  bool has_run(size_t bytes) const {
    return by_size_.lower_bound({bytes, nullptr}) != by_size_.end();
  }
  void put(char* data, size_t bytes);
  // Extends the last free run to at least `bytes` with pages from the system. False if the system refuses, or would have to kill a process.
  bool grow(size_t bytes);
  // Gives free runs back to the system, the largest first, until `bytes` are given or none is left.
  void give_back(size_t bytes);

  // Bytes held from the system.
  size_t mapped() const {
    return mapped_.load(std::memory_order_relaxed);
  }
  size_t peak_mapped() const {
    return peak_mapped_.load(std::memory_order_relaxed);
  }

  void reset_peak() {
    peak_mapped_.store(mapped(), std::memory_order_relaxed);
  }

 private:
  using Runs = std::map<char*, size_t>;

  void insert(char* data, size_t bytes);
  void erase(Runs::iterator run);
  size_t free_before(char* end) const;
  bool reserve(size_t bytes);

  Runs runs_; // free, by address; no two touch
  std::set<std::pair<size_t, char*>> by_size_; // the same
  // Addresses without memory: the heap grows into their first pages, so that its memory lies together without gaps.
  char* reserved_ = nullptr;
  char* reserved_end_ = nullptr;
  std::atomic<size_t> mapped_{0};
  std::atomic<size_t> peak_mapped_{0};
};

} // namespace torch_xla::cpu
