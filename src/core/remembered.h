// Remembered: a cache of answers by the hash of the question.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/hash.h"

namespace torch_xla {

// Thread-safe. Holds at most `most` answers; one more clears all others.
template <typename T>
class Remembered {
 public:
  explicit Remembered(size_t most) : most_(most) {}

  std::optional<T> find(const Hash128& question) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = answers_.find(question);
    return found == answers_.end() ? std::nullopt : std::make_optional(found->second);
  }
  void add(const Hash128& question, T answer) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (answers_.size() >= most_) {
      answers_.clear();
    }
    answers_.insert_or_assign(question, std::move(answer));
  }

 private:
  const size_t most_;
  std::mutex mutex_;
  std::unordered_map<Hash128, T> answers_; // guarded by mutex_
};

} // namespace torch_xla
