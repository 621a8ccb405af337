// Keeps code pages, freed ones included, side by side with the same protection: one mapping for the system, not one per kernel.
#include "engine/cpu/codegen/code_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "core/errors.h"

namespace torch_xla::cpu {
namespace {

constexpr size_t kSlabBytes = size_t{8} << 20;

[[noreturn]] void throw_no_memory() {
  throw UserError(ErrorKind::OutOfMemory, str("no memory for the code of a kernel: ", std::strerror(errno)));
}

void protect(char* data, size_t bytes, int protection) {
  if (::mprotect(data, bytes, protection) != 0) {
    throw_no_memory();
  }
}

// The free pages of all slabs. Thread-safe.
class FreePages {
 public:
  // Never destroyed, as code may run until the very end.
  static FreePages& get() {
    static auto* pages = new FreePages;
    return *pages;
  }

  // The lowest pages that are large enough.
  char* take(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& range) { return range.second >= bytes; });
    if (found == free_.end()) {
      found = add_slab(std::max(bytes, kSlabBytes));
    }
    auto [data, size] = *found;
    free_.erase(found);
    if (size > bytes) {
      free_.emplace(data + bytes, size - bytes);
    }
    return data;
  }

  void give_back(char* data, size_t bytes) {
    ::madvise(data, bytes, MADV_DONTNEED);
    std::lock_guard<std::mutex> lock(mutex_);
    add(data, bytes);
  }

 private:
  using Ranges = std::map<char*, size_t>;

  Ranges::iterator add_slab(size_t bytes) {
    void* slab = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) {
      throw_no_memory();
    }
    return add(static_cast<char*>(slab), bytes);
  }

  // Joins the range with its neighbours.
  Ranges::iterator add(char* data, size_t bytes) {
    auto next = free_.lower_bound(data);
    if (next != free_.end() && data + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == data) {
        previous->second += bytes;
        return previous;
      }
    }
    return free_.emplace_hint(next, data, bytes);
  }

  std::mutex mutex_;
  Ranges free_; // size by address; guarded by mutex_
};

size_t round_to_pages(size_t bytes) {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

} // namespace

CodePages::CodePages(size_t bytes) : data_(FreePages::get().take(round_to_pages(bytes))), bytes_(round_to_pages(bytes)) {
  try {
    protect(data_, bytes_, PROT_READ | PROT_WRITE);
  } catch (...) {
    FreePages::get().give_back(data_, bytes_);
    throw;
  }
}

CodePages::~CodePages() {
  FreePages::get().give_back(data_, bytes_);
}

void CodePages::seal() {
  __builtin___clear_cache(data_, data_ + bytes_);
  protect(data_, bytes_, PROT_READ | PROT_EXEC);
}

} // namespace torch_xla::cpu
