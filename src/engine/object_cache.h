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

// Creates the directory if it may. False, with a warning, where it is not this user's alone; false in silence where it cannot be had.
bool open_cache_directory(const std::string& path, bool read_only);

// Thread-safe; any number of processes may share the directory. Failures to read or write are misses, never errors.
//
// What lies in the directory is run, so it must be the user's alone: one that belongs to someone else, or that others may write, is refused
// with a warning. So is a file. It is created with mode 0700, its files with 0600. It is pruned when it is opened, once an hour, and after
// each `kPutsPerPrune` files that this process has written. Where it is opened to be read only, nothing in it is changed.
class ObjectCache {
 public:
  static constexpr int64_t kPutsPerPrune = 4096;

  // Empty switches the cache off.
  void set_directory(const std::string& path, const CacheLimits& limits = {}, bool read_only = false);
  bool is_on() const;
  // The object that was put under the same text.
  std::optional<std::string> find(const std::string& key) const;
  // As above, of a text with this hash.
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
