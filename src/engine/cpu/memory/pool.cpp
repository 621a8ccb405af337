// Takes and gives back blocks by size class: small ones are cut from slabs, the blocks of large ones are runs of pages.
#include "engine/cpu/memory/pool.h"

#include <algorithm>
#include <bit>
#include <deque>

#include "core/devices.h"
#include "core/env.h"
#include "core/errors.h"
#include "core/memory_log.h"
#include "core/process.h"

namespace torch_xla::cpu {
namespace {

constexpr size_t kShared = kPage; // from here on a block may come from a larger class
constexpr size_t kSlack = size_t{64} << 20; // memory that the pool may hold beyond 5/4 of its highest use

// Classes 0 to 7 are the multiples of 64 up to 512; then each power of two has eight steps.
constexpr int class_of(size_t size) {
  if (size <= 512) {
    return size ? static_cast<int>((size - 1) / 64) : 0;
  }
  int octave = std::bit_width(size - 1) - 1; // 2^octave < size <= 2^(octave + 1)
  size_t step = size_t{1} << (octave - 3);
  int within = static_cast<int>((size - 1 - (size_t{1} << octave)) / step);
  return 8 * (octave - 8) + within;
}

constexpr size_t class_size(int index) {
  if (index < 8) {
    return 64 * static_cast<size_t>(index + 1);
  }
  int octave = index / 8 + 8;
  size_t size = (size_t{1} << octave) + (static_cast<size_t>(index % 8) + 1) * (size_t{1} << (octave - 3));
  return size;
}

// From 64 KB for 1024 blocks to 1 MB for two.
size_t slab_bytes(int index) {
  size_t pages = std::clamp(class_size(index) * 16 / kPage, size_t{1}, size_t{16});
  return pages * kPage;
}

[[noreturn]] void refuse(size_t bytes) {
  throw UserError(ErrorKind::OutOfMemory, out_of_memory_text(bytes));
}

} // namespace

Pool& Pool::get(int device) {
  static auto* pools = [] {
    auto* made = new std::deque<Pool>;
    for (int index = 0; index < env::cpu_num_devices(); ++index) {
      made->emplace_back(index);
    }
    return made;
  }();
  return (*pools)[static_cast<size_t>(device)];
}

Pool* Pool::find(const void* data) {
  int number = page_map().get(data);
  return number ? &get((number - 1) / kClasses) : nullptr;
}

Pool::Pool(int device) : device_(device) {
  static_assert(kMaxDevices * kClasses < 1 << 16); // the number of a page
  static_assert(kSmallClasses == class_of(8 * kPage) + 1); // steps of 64 KB from there on
  process::note_use();
}

void* Pool::allocate(size_t size) {
  process::check();
  int index = class_of(size);
  char* data = index < kSmallClasses ? take_small(index) : take_large(index);
  if (!data) {
    refuse(size);
  }
  auto bytes = static_cast<int64_t>(class_size(class_of_block(data)));
  bytes_.add(bytes);
  report(data, bytes);
  return data;
}

char* Pool::take_small(int index) {
  char* data = take_free(index);
  return data ? data : refill(index);
}

// A free block of the class; for sizes from kShared on also of the next larger classes, up to half as much again.
char* Pool::take_free(int index) {
  int last = class_size(index) >= kShared ? std::min(index + 4, kSmallClasses - 1) : index;
  for (int i = index; i <= last; ++i) {
    SmallClass& small_class = classes_[i];
    std::lock_guard<std::mutex> lock(small_class.mutex);
    if (!small_class.free.empty()) {
      char* data = small_class.free.back();
      small_class.free.pop_back();
      return data;
    }
  }
  return nullptr;
}

char* Pool::refill(int index) {
  std::lock_guard<std::mutex> heap_lock(heap_mutex_);
  size_t size = class_size(index);
  size_t bytes = slab_bytes(index);
  char* slab = take_pages(bytes, index);
  if (slab) {
    SmallClass& small_class = classes_[index];
    std::lock_guard<std::mutex> lock(small_class.mutex);
    small_class.slabs.push_back(slab);
    for (size_t i = bytes / size - 1; i > 0; --i) { // the lowest addresses are taken first: untouched pages stay so
      small_class.free.push_back(slab + i * size);
    }
  }
  return slab;
}

char* Pool::take_large(int index) {
  std::lock_guard<std::mutex> lock(heap_mutex_);
  return index < kClasses ? take_pages(class_size(index), index) : nullptr;
}

// Pages for the class; null if the system has no more. The caller holds heap_mutex_.
char* Pool::take_pages(size_t bytes, int index) {
  char* data = heap_.take(bytes);
  if (!data && find_room(bytes)) {
    data = heap_.take(bytes);
  }
  if (data) {
    page_map().set(data, bytes, static_cast<uint16_t>(device_ * kClasses + index + 1));
  }
  return data;
}

// Makes a free run of that size; false if the system has no more. The first touch of fresh pages costs more than a search for free pages in
// all slabs. The caller holds heap_mutex_.
bool Pool::find_room(size_t bytes) {
  collect_slabs();
  if (heap_.has_run(bytes)) {
    return true;
  }
  make_room(bytes);
  if (heap_.grow(bytes)) {
    return true;
  }
  heap_.give_back(heap_.mapped());
  return heap_.grow(bytes);
}

// Keeps the pool below its bound when `bytes` more come, by free runs. The caller holds heap_mutex_.
void Pool::make_room(size_t bytes) {
  auto most = static_cast<size_t>(std::max({highest_, peak_bytes_used(), bytes_used() + static_cast<int64_t>(bytes)}));
  size_t bound = most + most / 4 + kSlack;
  if (heap_.mapped() + bytes > bound) {
    heap_.give_back(heap_.mapped() + bytes - bound);
  }
}

// The slabs without a block in use become free runs. The caller holds heap_mutex_.
void Pool::collect_slabs() {
  for (int index = 0; index < kSmallClasses; ++index) {
    std::lock_guard<std::mutex> lock(classes_[index].mutex);
    if (!classes_[index].free.empty()) {
      collect_slabs(index);
    }
  }
}

// The caller holds heap_mutex_ and the class's.
void Pool::collect_slabs(int index) {
  auto& [mutex, free, slabs] = classes_[index];
  size_t bytes = slab_bytes(index);
  size_t blocks = bytes / class_size(index);
  std::vector<char*> sorted = free;
  std::sort(sorted.begin(), sorted.end());
  auto is_free = [&](char* slab) {
    auto first = std::lower_bound(sorted.begin(), sorted.end(), slab);
    return static_cast<size_t>(std::lower_bound(first, sorted.end(), slab + bytes) - first) == blocks;
  };
  auto unused = std::partition(slabs.begin(), slabs.end(), [&](char* slab) { return !is_free(slab); });
  std::sort(unused, slabs.end());
  std::erase_if(free, [&](char* data) {
    auto after = std::upper_bound(unused, slabs.end(), data);
    return after != unused && data < *std::prev(after) + bytes;
  });
  std::for_each(unused, slabs.end(), [&](char* slab) { heap_.put(slab, bytes); });
  slabs.erase(unused, slabs.end());
}

void Pool::release(void* data) {
  if (!data || process::in_forked_child()) {
    return;
  }
  int index = class_of_block(data);
  auto bytes = static_cast<int64_t>(class_size(index));
  bytes_.subtract(bytes);
  report(data, -bytes);
  if (index >= kSmallClasses) {
    std::lock_guard<std::mutex> lock(heap_mutex_);
    heap_.put(static_cast<char*>(data), static_cast<size_t>(bytes));
    return;
  }
  SmallClass& small_class = classes_[index];
  std::lock_guard<std::mutex> lock(small_class.mutex);
  small_class.free.push_back(static_cast<char*>(data));
}

void Pool::report(const void* data, int64_t bytes) const {
  if (memory_log::Listener* listener = memory_log::listener()) {
    listener->on_change({device_, data, bytes, bytes_used(), bytes_reserved()});
  }
}

// The pool's bound depends on the highest use ever, so that number is kept.
void Pool::reset_peaks() {
  process::check();
  std::lock_guard<std::mutex> lock(heap_mutex_);
  highest_ = std::max(highest_, bytes_.reset_peak());
  heap_.reset_peak();
}

void Pool::empty_cache() {
  std::lock_guard<std::mutex> lock(heap_mutex_);
  collect_slabs();
  heap_.give_back(heap_.mapped());
}

} // namespace torch_xla::cpu
