// Reads and writes files that are named by the hash of their bytes.
#include "engine/plain_files.h"

#include "engine/object_cache.h"
#include "engine/own_file.h"

namespace torch_xla {

void PlainFiles::set_directory(const std::string& path, bool read_only) {
  {
    std::lock_guard lock(mutex_);
    directory_ = path;
    read_only_ = read_only;
  }
  if (!path.empty() && !read_only) {
    prune_cache(path, CacheLimits());
  }
}

bool PlainFiles::is_on() const {
  std::lock_guard lock(mutex_);
  return !directory_.empty();
}

std::string PlainFiles::path_of(const Hash128& name) const {
  std::lock_guard lock(mutex_);
  return directory_.empty() ? directory_ : directory_ + "/" + name.hex() + ".o";
}

std::optional<Hash128> PlainFiles::put(const std::string& bytes) {
  Hash128 name = ObjectCache::hash_of(bytes);
  std::string path = path_of(name);
  std::unique_lock lock(mutex_);
  bool writes = !read_only_;
  lock.unlock();
  return writes && !path.empty() && write_own_file(path, bytes) ? std::make_optional(name) : std::nullopt;
}

std::optional<std::string> PlainFiles::find(const Hash128& name) const {
  std::string path = path_of(name);
  if (path.empty()) {
    return std::nullopt;
  }
  OwnFile file(path);
  std::string bytes(file.size(), 0);
  if (bytes.empty() || !file.read(bytes.data(), bytes.size()) || ObjectCache::hash_of(bytes) != name) {
    return std::nullopt;
  }
  std::lock_guard lock(mutex_);
  if (!read_only_) {
    file.touch();
  }
  return bytes;
}

} // namespace torch_xla
