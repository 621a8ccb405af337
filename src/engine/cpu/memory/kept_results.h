// What is made of values that do not change, kept for later runs: a weight that each run casts or packs is cast and packed once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/hash.h"

namespace torch_xla::cpu {

// That of one value, which goes when the value goes. Not thread-safe.
class KeptResults {
 public:
  // Whether so many bytes may be added: few results are kept of one value, and of all values no more than a part of the machine's memory.
  bool has_room(int64_t bytes) const;
  // `key`: of the way in which it is made, and of all that it is made of. What add() got, or null; of the type that the key stands for.
  template <typename T>
  std::shared_ptr<T> find(const Hash128& key) const {
    return std::static_pointer_cast<T>(find_any(key));
  }
  // It holds so many bytes, which nobody writes any more.
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
