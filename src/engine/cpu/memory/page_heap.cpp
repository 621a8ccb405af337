// Runs of free pages: best fit, joined with their neighbours.
#include "engine/cpu/memory/page_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <memory>

#include "engine/cpu/memory/system_memory.h"

namespace torch_xla::cpu {
namespace {

constexpr size_t kChunk = size_t{2} << 20; // requests to the system are multiples of it
constexpr size_t kReserve = size_t{128} << 20; // addresses at a time
constexpr size_t kWorthAsking = size_t{64} << 20; // least request for which the system's free memory is read: 50 us

constexpr size_t whole_chunks(size_t bytes) {
  return (bytes + kChunk - 1) / kChunk * kChunk;
}

// Addresses at a multiple of kPage, without memory; null if the system refuses.
char* map_addresses(size_t bytes) {
  void* range = mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (range == MAP_FAILED) {
    return nullptr;
  }
  auto* begin = static_cast<char*>(range);
  size_t before = (kPage - reinterpret_cast<uintptr_t>(begin) % kPage) % kPage;
  if (before) {
    munmap(begin, before);
  }
  munmap(begin + before + bytes, kPage - before);
  return begin + before;
}

bool has_room(size_t bytes) {
  return bytes < kWorthAsking || static_cast<int64_t>(bytes) <= available_memory();
}

} // namespace

void PageMap::set(char* data, size_t bytes, uint16_t number) {
  size_t first = reinterpret_cast<uintptr_t>(data) / kPage;
  for (size_t page = first; page < first + bytes / kPage; ++page) {
    if (number != 0 || leaves_[page / kLeafPages].load(std::memory_order_relaxed)) {
      get_leaf(page / kLeafPages).numbers[page % kLeafPages].store(number, std::memory_order_relaxed);
    }
  }
}

// If two threads make the same leaf, the first one's stays.
PageMap::Leaf& PageMap::get_leaf(size_t index) {
  Leaf* leaf = leaves_[index].load(std::memory_order_acquire);
  if (!leaf) {
    auto made = std::make_unique<Leaf>();
    if (leaves_[index].compare_exchange_strong(leaf, made.get(), std::memory_order_acq_rel)) {
      leaf = made.release();
    }
  }
  return *leaf;
}

// In the program's zero-initialized image: pages without a leaf are never touched.
constinit static PageMap the_map;

PageMap& page_map() {
  return the_map;
}

void PageHeap::insert(char* data, size_t bytes) {
  runs_.emplace(data, bytes);
  by_size_.emplace(bytes, data);
}

void PageHeap::erase(Runs::iterator run) {
  by_size_.erase({run->second, run->first});
  runs_.erase(run);
}

char* PageHeap::take(size_t bytes) {
  auto best = by_size_.lower_bound({bytes, nullptr});
  if (best == by_size_.end()) {
    return nullptr;
  }
  auto [size, data] = *best;
  erase(runs_.find(data));
  if (size > bytes) {
    insert(data + bytes, size - bytes);
  }
  return data;
}

void PageHeap::put(char* data, size_t bytes) {
  auto next = runs_.lower_bound(data);
  if (next != runs_.end() && next->first == data + bytes) {
    bytes += next->second;
    erase(next++);
  }
  if (next != runs_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == data) {
      data = before->first;
      bytes += before->second;
      erase(before);
    }
  }
  insert(data, bytes);
}

// Bytes of the free run that ends there.
size_t PageHeap::free_before(char* end) const {
  auto next = runs_.lower_bound(end);
  if (next == runs_.begin()) {
    return 0;
  }
  const auto& [data, bytes] = *std::prev(next);
  return data + bytes == end ? bytes : 0;
}

// Reserves at least this many addresses; drops the rest of the last ones.
bool PageHeap::reserve(size_t bytes) {
  size_t size = std::max(bytes, kReserve);
  char* data = map_addresses(size);
  if (!data) {
    size = bytes;
    data = map_addresses(size);
  }
  if (!data) {
    return false;
  }
  if (reserved_ != reserved_end_) {
    munmap(reserved_, static_cast<size_t>(reserved_end_ - reserved_));
  }
  reserved_ = data;
  reserved_end_ = data + size;
  return true;
}

bool PageHeap::grow(size_t bytes) {
  size_t more = whole_chunks(bytes - std::min(bytes, free_before(reserved_)));
  bool fits = more <= static_cast<size_t>(reserved_end_ - reserved_);
  if (!fits) {
    more = whole_chunks(bytes);
  }
  if (!has_room(more) || (!fits && !reserve(more)) || mprotect(reserved_, more, PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  mapped_.fetch_add(more, std::memory_order_relaxed);
  peak_mapped_.store(std::max(peak_mapped(), mapped()), std::memory_order_relaxed);
  put(std::exchange(reserved_, reserved_ + more), more);
  return true;
}

void PageHeap::give_back(size_t bytes) {
  while (bytes && !by_size_.empty()) {
    auto [size, data] = *by_size_.rbegin();
    erase(runs_.find(data));
    size_t given = std::min(size, whole_chunks(bytes));
    if (given < size) {
      insert(data, size - given);
    }
    page_map().set(data + size - given, given, 0);
    munmap(data + size - given, given);
    mapped_.fetch_sub(given, std::memory_order_relaxed);
    bytes -= std::min(bytes, given);
  }
}

} // namespace torch_xla::cpu
