// Size classes, slabs and the reserved address range of the memory pool.
#include "engine/cpu/pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <bit>

#include "core/errors.h"

namespace torch_xla::cpu {
namespace {

constexpr size_t kChunk = size_t{2} << 20;
constexpr size_t kLarge = 4 << 20; // from here on a block has chunks of its own
constexpr size_t kShared = size_t{64} << 10; // from here on a block may come from a larger class
constexpr size_t kHuge = size_t{1} << 20; // slabs of classes from this size on use 2 MB pages

std::atomic<bool> in_forked_child{false};

// Classes 0 to 7 are the multiples of 64 up to 512; then each power of two has eight steps.
int class_of(size_t size) {
  if (size <= 512) {
    return size ? static_cast<int>((size - 1) / 64) : 0;
  }
  int octave = std::bit_width(size - 1) - 1; // 2^octave < size <= 2^(octave + 1)
  size_t step = size_t{1} << (octave - 3);
  int within = static_cast<int>((size - 1 - (size_t{1} << octave)) / step);
  return 8 * (octave - 8) + within;
}

size_t class_size(int index) {
  if (index < 8) {
    return 64 * static_cast<size_t>(index + 1);
  }
  int octave = index / 8 + 8;
  size_t size = (size_t{1} << octave) + (static_cast<size_t>(index % 8) + 1) * (size_t{1} << (octave - 3));
  return size;
}

size_t round_to_chunk(size_t size) {
  return (size + kChunk - 1) / kChunk * kChunk;
}

} // namespace

Pool& Pool::get() {
  static Pool* pool = new Pool;
  return *pool;
}

Pool::Pool() {
  void* range = MAP_FAILED;
  for (reserved_ = size_t{1} << 40; reserved_ > (size_t{1} << 33); reserved_ /= 2) {
    range = mmap(nullptr, reserved_ + kChunk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) {
      break;
    }
  }
  XLA_CHECK(range != MAP_FAILED, "the XLA CPU engine could not reserve addresses for its memory pool");
  base_ = reinterpret_cast<char*>(round_to_chunk(reinterpret_cast<size_t>(range)));
  chunk_class_.reserve(1 << 16);
  chunk_class_.resize(reserved_ / kChunk);
  pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; });
}

void* Pool::allocate(size_t size) {
  int index = class_of(size);
  XLA_CHECK_KIND(OutOfMemory, index < kClasses && size < reserved_, "out of memory: a buffer of ", size, " bytes was asked for");
  char* data = take_free(index);
  if (!data) {
    if (size >= kLarge) {
      give_back(size); // what earlier programs left is not held beside new memory; a free block taken again gives back nothing
    }
    std::lock_guard<std::mutex> lock(classes_[index].mutex);
    data = carve(classes_[index], index, class_size(index));
  }
  add_used(static_cast<int64_t>(class_size(class_of_block(data))));
  return data;
}

// A free block of the class, or, of a size where memory counts, of one of the next larger classes: up to half as much again.
char* Pool::take_free(int index) {
  int last = class_size(index) >= kShared ? std::min(index + 4, kClasses - 1) : index;
  for (int i = index; i <= last; ++i) {
    SizeClass& size_class = classes_[i];
    std::lock_guard<std::mutex> lock(size_class.mutex);
    if (!size_class.free.empty()) {
      char* data = size_class.free.back();
      size_class.free.pop_back();
      size_class.bare = std::min(size_class.bare, size_class.free.size());
      return data;
    }
  }
  return nullptr;
}

int Pool::class_of_block(const void* data) const {
  return chunk_class_[static_cast<size_t>(static_cast<const char*>(data) - base_) / kChunk];
}

char* Pool::carve(SizeClass& size_class, int index, size_t size) {
  if (size >= kLarge) {
    return map_chunks(round_to_chunk(size), index, size / kChunk * kChunk); // the last, partly used chunk has small pages
  }
  if (static_cast<size_t>(size_class.end - size_class.next) < size) {
    size_t slab = size <= kChunk / 16 ? kChunk : 4 * kChunk;
    size_class.next = map_chunks(slab, index, size >= kHuge ? slab : 0);
    size_class.end = size_class.next + slab;
  }
  char* data = size_class.next;
  size_class.next += size;
  return data;
}

char* Pool::map_chunks(size_t bytes, int index, size_t huge_bytes) {
  std::lock_guard<std::mutex> lock(map_mutex_);
  XLA_CHECK_KIND(
      OutOfMemory,
      mapped_ + bytes <= reserved_,
      "out of memory: the XLA CPU engine's pool holds ",
      mapped_,
      " bytes, ",
      bytes,
      " more were asked for");
  char* data = base_ + mapped_;
  if (mprotect(data, bytes, PROT_READ | PROT_WRITE) != 0) {
    throw UserError(ErrorKind::OutOfMemory, str("out of memory: the system gave no ", bytes, " bytes to the XLA CPU engine"));
  }
  if (huge_bytes) {
    madvise(data, huge_bytes, MADV_HUGEPAGE);
  }
  for (size_t chunk = mapped_ / kChunk; chunk < (mapped_ + bytes) / kChunk; ++chunk) {
    chunk_class_[chunk] = static_cast<uint16_t>(index);
  }
  mapped_ += bytes;
  return data;
}

void Pool::release(void* data) {
  if (!data || in_forked_child.load(std::memory_order_relaxed)) {
    return;
  }
  int index = class_of_block(data);
  used_.fetch_sub(static_cast<int64_t>(class_size(index)), std::memory_order_relaxed);
  SizeClass& size_class = classes_[index];
  std::lock_guard<std::mutex> lock(size_class.mutex);
  size_class.free.push_back(static_cast<char*>(data));
}

void Pool::add_used(int64_t bytes) {
  int64_t now = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

// The addresses stay with the pool: the system takes the pages and gives zeroed ones at the next touch.
void Pool::give_back(size_t bytes) {
  for (int index = kClasses - 1; index >= class_of(kLarge) && bytes; --index) {
    SizeClass& size_class = classes_[index];
    std::lock_guard<std::mutex> lock(size_class.mutex);
    while (bytes && size_class.bare < size_class.free.size()) {
      madvise(size_class.free[size_class.bare++], round_to_chunk(class_size(index)), MADV_DONTNEED);
      bytes -= std::min(bytes, class_size(index));
    }
  }
}

} // namespace torch_xla::cpu
