// Compiled code on disk, found by a key: object files of kernels, programs of a PJRT plugin.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "engine/prune_cache.h"

namespace torch_xla {

// Thread-safe; any number of processes may share the directory. Failures to read or write are misses, never errors.
//
// What lies in the directory is run, so it must be the user's alone: one that belongs to someone else, or that others may write, is refused
// with a warning. So is a file. It is created with mode 0700, its files with 0600. It is pruned when it is opened, once an hour, and after
// each `kPutsPerPrune` files that this process has written.
class ObjectCache {
 public:
  static constexpr int64_t kPutsPerPrune = 4096;

  // Empty switches the cache off.
  void set_directory(const std::string& path, const CacheLimits& limits = {});
  // The object that was put under the same text.
  std::optional<std::string> find(const std::string& key) const;
  void put(const std::string& key, const std::string& object);

 private:
  std::string path_of(const std::string& key) const;
  void prune_sometimes();

  mutable std::mutex mutex_;
  std::string directory_; // guarded by mutex_
  CacheLimits limits_; // guarded by mutex_
  int64_t puts_ = 0; // since the last pruning; guarded by mutex_
};

} // namespace torch_xla
