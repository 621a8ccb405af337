// Giving pages back, and filling them again.
#include "engine/cpu/memory/parts_away.h"

#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace torch_xla::cpu {
namespace {

// One for all: parts seldom come back.
std::mutex& mutex() {
  static auto* made = new std::mutex;
  return *made;
}

// The whole pages within a part lose what they hold.
void drop_pages(char* part, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(part) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(part) + bytes) / page * page;
  if (begin < end) {
    madvise(part + (begin - reinterpret_cast<uintptr_t>(part)), end - begin, MADV_DONTNEED);
  }
}

} // namespace

struct PartsAway::Part {
  char* data;
  size_t bytes;
  Fill fill;
};

PartsAway::PartsAway() = default;
PartsAway::~PartsAway() = default;

// A reader makes itself known before it asks any(), and this looks for readers after any() is true: one of them sees the other.
void PartsAway::add(char* part, size_t bytes, Fill fill, const std::function<bool()>& may_go) {
  std::lock_guard<std::mutex> lock(mutex());
  are_away_ = true;
  if (may_go()) {
    parts_.push_back({part, bytes, std::move(fill)});
    drop_pages(part, bytes);
  }
  are_away_ = !parts_.empty();
}

void PartsAway::bring_back() {
  std::lock_guard<std::mutex> lock(mutex());
  for (; !parts_.empty(); parts_.pop_back()) {
    parts_.back().fill(parts_.back().data);
  }
  are_away_ = false;
}

} // namespace torch_xla::cpu
