// Keeps results computed from values that do not change: a weight is cast and packed once, not in each run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/hash.h"

namespace torch_xla::cpu {

// The kept results of one value, freed with the value. Not thread-safe.
class KeptResults {
 public:
  // Whether a result of this size may be added: one value keeps few results, and all values together at most a part of the machine's
  // memory.
  bool has_room(int64_t bytes) const;
  // The result given to add(), or null. `key` covers how the result is computed, from which values, and its type.
  template <typename T>
  std::shared_ptr<T> find(const Hash128& key) const {
    return std::static_pointer_cast<T>(find_any(key));
  }
  // Keeps a result of that size; it must not be written any more.
  void add(const Hash128& key, std::shared_ptr<void> result, int64_t bytes);

 private:
  class Count;
  struct Kept {
    Hash128 key;
    std::shared_ptr<void> result;
    std::shared_ptr<Count> count;
  };
  std::shared_ptr<void> find_any(const Hash128& key) const;

  std::vector<Kept> kept_;
};

} // namespace torch_xla::cpu
