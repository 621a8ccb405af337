// Reads and writes the cache's files: a header, the key and the object.
#include "engine/object_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/errors.h"
#include "core/hash.h"
#include "engine/own_file.h"

namespace torch_xla {

namespace {

struct Header {
  char magic[8] = {'X', 'L', 'A', 'C', 'O', 'D', 'E', '2'};
  uint64_t hash_lo = 0; // of the key and the object
  uint64_t hash_hi = 0;
  uint64_t key_size = 0;
  uint64_t object_size = 0;
};

Header header_of(std::string_view key, std::string_view object) {
  Hash128 hash;
  hash.add_bytes(key.data(), key.size());
  hash.add_bytes(object.data(), object.size());
  Header header;
  header.hash_lo = hash.lo;
  header.hash_hi = hash.hi;
  header.key_size = key.size();
  header.object_size = object.size();
  return header;
}

struct Content {
  Header header;
  std::string rest; // the key and the object
};

// The file with the length in its header; nothing for any other file. `touch`: marks it as used.
std::optional<Content> read_file(const std::string& path, bool touch) {
  OwnFile file(path);
  uint64_t size = file.size();
  Content content;
  if (size < sizeof(Header) || !file.read(reinterpret_cast<char*>(&content.header), sizeof(Header))) {
    return std::nullopt;
  }
  size -= sizeof(Header);
  if (content.header.key_size > size || content.header.object_size != size - content.header.key_size) {
    return std::nullopt;
  }
  content.rest.resize(size);
  if (!file.read(content.rest.data(), size)) {
    return std::nullopt;
  }
  if (touch) {
    file.touch();
  }
  return content;
}

// With the missing ones above it, all for their owner only.
void create_own_directory(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno == ENOENT && path.has_relative_path()) {
    create_own_directory(path.parent_path());
    ::mkdir(path.c_str(), 0700);
  }
}

} // namespace

bool open_cache_directory(const std::string& path, bool read_only) {
  if (!read_only) {
    create_own_directory(path);
  }
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return false;
  }
  if (!is_own(info)) {
    std::fprintf(
        stderr,
        "torch_xla: the cache of compiled code at %s is not used, as %s: code from there would run as this user. Make it your own "
        "(mode 700), or name another directory in XLA_PERSISTENT_CACHE_PATH\n",
        path.c_str(),
        info.st_uid == ::geteuid() ? "others may write to it" : "it belongs to another user");
    return false;
  }
  return true;
}

void ObjectCache::set_directory(const std::string& path, const CacheLimits& limits, bool read_only) {
  bool opened = !path.empty() && open_cache_directory(path, read_only);
  {
    std::lock_guard lock(mutex_);
    directory_ = opened ? path : std::string();
    limits_ = limits;
    read_only_ = read_only;
  }
  if (opened && !read_only) {
    prune_cache_hourly(path, limits);
  }
}

bool ObjectCache::is_on() const {
  std::lock_guard lock(mutex_);
  return !directory_.empty();
}

Hash128 ObjectCache::hash_of(std::string_view key) {
  Hash128 hash;
  hash.add_bytes(key.data(), key.size());
  return hash;
}

std::string ObjectCache::path_of(const Hash128& hash) const {
  return directory_.empty() ? directory_ : directory_ + "/" + hash.hex() + ".o";
}

std::optional<std::string> ObjectCache::find(const std::string& key) const {
  return read_object(hash_of(key), &key);
}

std::optional<std::string> ObjectCache::find(const Hash128& hash) const {
  return read_object(hash, nullptr);
}

std::optional<std::string> ObjectCache::read_object(const Hash128& hash, const std::string* key) const {
  std::unique_lock lock(mutex_);
  std::string path = path_of(hash);
  bool touch = !read_only_;
  lock.unlock();
  std::optional<Content> content = path.empty() ? std::nullopt : read_file(path, touch);
  if (!content) {
    return std::nullopt;
  }
  std::string_view found_key = std::string_view(content->rest).substr(0, content->header.key_size);
  std::string_view object = std::string_view(content->rest).substr(content->header.key_size);
  Header expected = header_of(found_key, object);
  bool intact = std::memcmp(&content->header, &expected, sizeof(Header)) == 0;
  bool is_of_key = key ? found_key == *key : hash_of(found_key) == hash;
  return intact && is_of_key ? std::make_optional<std::string>(object) : std::nullopt;
}

void ObjectCache::put(const std::string& key, const std::string& object) {
  std::unique_lock lock(mutex_);
  std::string path = read_only_ ? std::string() : path_of(hash_of(key));
  lock.unlock();
  if (path.empty()) {
    return;
  }
  Header header = header_of(key, object);
  if (write_own_file(path, std::string(reinterpret_cast<const char*>(&header), sizeof header) + key + object)) {
    prune_sometimes();
  }
}

void ObjectCache::prune_sometimes() {
  std::unique_lock lock(mutex_);
  if (++puts_ < kPutsPerPrune) {
    return;
  }
  puts_ = 0;
  std::string directory = directory_;
  CacheLimits limits = limits_;
  lock.unlock();
  prune_cache(directory, limits);
}

} // namespace torch_xla
