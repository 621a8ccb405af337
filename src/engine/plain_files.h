// A plugin's serialized executables as files of their own, for tools that read them.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "core/hash.h"

namespace torch_xla {

// Each file holds the bytes alone, and its name is their hash. Limits and safety of the directory are those of ObjectCache, and it is
// pruned when it is opened. Thread-safe.
class PlainFiles {
 public:
  // Empty switches it off. `read_only`: nothing is written there.
  void set_directory(const std::string& path, bool read_only);
  bool is_on() const;
  // The name of the file; nothing if it could not be written.
  std::optional<Hash128> put(const std::string& bytes);
  // The bytes; nothing if the file is missing or damaged.
  std::optional<std::string> find(const Hash128& name) const;

 private:
  std::string path_of(const Hash128& name) const;

  mutable std::mutex mutex_;
  std::string directory_; // guarded by mutex_
  bool read_only_ = false; // guarded by mutex_
};

} // namespace torch_xla
