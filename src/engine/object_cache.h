// Compiled code on disk, found by a key: object files of kernels, programs of a PJRT plugin.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/hash.h"
#include "engine/prune_cache.h"

namespace torch_xla {

// Creates the directory unless read_only. False with a warning if it is not this user's alone; false without one if it cannot be opened.
bool open_cache_directory(const std::string& path, bool read_only);

// Thread-safe; any number of processes may share the directory. Failures to read or write are misses, never errors.
//
// The process runs code from the directory, so it must be the user's alone: a directory or file that belongs to another user, or that
// others may write, is refused with a warning. The directory has mode 0700, its files 0600. It is pruned when it is opened, once an hour,
// and after each `kPutsPerPrune` files that this process has written. With read_only nothing in it is changed.
class ObjectCache {
 public:
  static constexpr int64_t kPutsPerPrune = 4096;

  // Empty switches the cache off.
  void set_directory(const std::string& path, const CacheLimits& limits = {}, bool read_only = false);
  bool is_on() const;
  // The object stored under the same text.
  std::optional<std::string> find(const std::string& key) const;
  // As above, for a text with this hash.
  static Hash128 hash_of(std::string_view key);
  std::optional<std::string> find(const Hash128& hash) const;
  void put(const std::string& key, const std::string& object);

 private:
  std::string path_of(const Hash128& hash) const; // empty: off; the caller holds the lock
  std::optional<std::string> read_object(const Hash128& hash, const std::string* key) const;
  void prune_sometimes();

  mutable std::mutex mutex_;
  std::string directory_; // guarded by mutex_
  CacheLimits limits_; // guarded by mutex_
  bool read_only_ = false; // guarded by mutex_
  int64_t puts_ = 0; // since the last pruning; guarded by mutex_
};

} // namespace torch_xla
