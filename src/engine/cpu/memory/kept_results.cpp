// Kept results, few for each value, and the bytes of all of them.
#include "engine/cpu/memory/kept_results.h"

#include <algorithm>
#include <atomic>

#include "engine/cpu/cost.h"
#include "engine/memory_count.h"

namespace torch_xla::cpu {
namespace {

// Most results of one value: a weight is read in few ways, except with images of many sizes.
constexpr size_t kMostOfValue = 4;

std::atomic<int64_t> bytes_kept{0}; // of all values

} // namespace

// Counts kept bytes while it lives.
class KeptResults::Count {
 public:
  explicit Count(int64_t bytes) : bytes_(bytes) {
    bytes_kept += bytes_;
  }
  ~Count() {
    bytes_kept -= bytes_;
  }
  Count(const Count&) = delete;
  Count& operator=(const Count&) = delete;

 private:
  const int64_t bytes_;
};

bool KeptResults::has_room(int64_t bytes) const {
  static const int64_t most = host_memory() / kKeptPart;
  return kept_.size() < kMostOfValue && bytes_kept + bytes <= most;
}

std::shared_ptr<void> KeptResults::find_any(const Hash128& key) const {
  auto found = std::find_if(kept_.begin(), kept_.end(), [&key](const Kept& kept) { return kept.key == key; });
  return found == kept_.end() ? nullptr : found->result;
}

void KeptResults::add(const Hash128& key, std::shared_ptr<void> result, int64_t bytes) {
  kept_.push_back({key, std::move(result), std::make_shared<Count>(bytes)});
}

} // namespace torch_xla::cpu
