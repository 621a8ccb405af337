// A file is a header (magic, hash and size of the object) and the object. It is written under another name and renamed.
#include "engine/object_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/errors.h"

namespace torch_xla {

namespace {

struct Header {
  char magic[8] = {'X', 'L', 'A', 'K', 'E', 'R', 'N', '1'};
  uint64_t hash_lo = 0;
  uint64_t hash_hi = 0;
  uint64_t size = 0;
};

Header header_of(const std::string& object) {
  Hash128 hash;
  hash.add_bytes(object.data(), object.size());
  Header header;
  header.hash_lo = hash.lo;
  header.hash_hi = hash.hi;
  header.size = object.size();
  return header;
}

// All or nothing.
bool write_file(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0) {
      return false;
    }
    done += static_cast<size_t>(n);
  }
  return true;
}

// Creates the directory, readable for its owner only, with the ones above it.
void create_directory(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  ::mkdir(path.c_str(), 0700);
}

} // namespace

void ObjectCache::set_directory(const std::string& path) {
  if (!path.empty()) {
    create_directory(path);
  }
  std::lock_guard lock(mutex_);
  directory_ = path;
}

std::string ObjectCache::directory() const {
  std::lock_guard lock(mutex_);
  return directory_;
}

std::string ObjectCache::path_of(const Hash128& key) const {
  std::string dir = directory();
  return dir.empty() ? dir : dir + "/" + key.hex() + ".o";
}

std::optional<std::string> ObjectCache::find(const Hash128& key) const {
  std::string path = path_of(key);
  std::ifstream file(path, std::ios::binary);
  if (path.empty() || !file) {
    return std::nullopt;
  }
  std::stringstream content;
  content << file.rdbuf();
  std::string bytes = content.str();
  if (bytes.size() < sizeof(Header)) {
    return std::nullopt;
  }
  std::string object = bytes.substr(sizeof(Header));
  Header expected = header_of(object);
  return std::memcmp(bytes.data(), &expected, sizeof(Header)) == 0 ? std::make_optional(std::move(object)) : std::nullopt;
}

void ObjectCache::put(const Hash128& key, const std::string& object) const {
  static std::atomic<uint64_t> counter{0};
  std::string path = path_of(key);
  if (path.empty()) {
    return;
  }
  std::string temporary = str(path, ".", ::getpid(), ".", counter++);
  int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return;
  }
  Header header = header_of(object);
  bool ok = write_file(fd, std::string(reinterpret_cast<const char*>(&header), sizeof header) + object);
  ok = ::close(fd) == 0 && ok;
  if (!ok || ::rename(temporary.c_str(), path.c_str()) != 0) {
    ::unlink(temporary.c_str());
  }
}

} // namespace torch_xla
