// Compiled code on disk, keyed by a hash: object files of kernels, programs of a PJRT plugin.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "core/hash.h"

namespace torch_xla {

// Thread-safe; any number of processes may share the directory. Failures to read or write are misses, never errors.
class ObjectCache {
 public:
  // Empty switches the cache off.
  void set_directory(const std::string& path);
  std::optional<std::string> find(const Hash128& key) const;
  void put(const Hash128& key, const std::string& object) const;

 private:
  std::string directory() const;
  std::string path_of(const Hash128& key) const;

  mutable std::mutex mutex_;
  std::string directory_; // guarded by mutex_
};

} // namespace torch_xla
