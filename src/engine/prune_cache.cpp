// Pruning of the object cache: the least recently used files go first.
#include "engine/prune_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <string_view>
#include <vector>

namespace torch_xla {
namespace {

constexpr time_t kInterval = 3600; // seconds between two prunings at opening
constexpr time_t kLongestWrite = 3600; // seconds after which a temporary file has no writer
constexpr const char* kStamp = "pruned"; // its time is that of the last pruning

struct Entry {
  std::string name;
  time_t used;
  int64_t bytes; // on disk
};

bool is_temporary(std::string_view name) {
  return !name.ends_with(".o");
}

// Lists our files; deletes leftovers of writers that ended early.
std::vector<Entry> list_files(DIR* directory) {
  std::vector<Entry> entries;
  int fd = ::dirfd(directory);
  time_t now = std::time(nullptr);
  while (const dirent* item = ::readdir(directory)) {
    std::string_view name = item->d_name;
    struct stat info;
    if (name.find(".o") == name.npos || ::fstatat(fd, item->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) {
      continue;
    }
    if (!is_temporary(name)) {
      entries.push_back({item->d_name, info.st_mtime, info.st_blocks * 512});
    } else if (now - info.st_mtime > kLongestWrite) {
      ::unlinkat(fd, item->d_name, 0);
    }
  }
  return entries;
}

} // namespace

void prune_cache(const std::string& directory, const CacheLimits& limits) {
  DIR* opened = ::opendir(directory.c_str());
  if (!opened) {
    return;
  }
  std::vector<Entry> entries = list_files(opened);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  int64_t bytes = 0;
  for (const Entry& entry : entries) {
    bytes += entry.bytes;
  }
  auto files = static_cast<int64_t>(entries.size());
  // A tenth below the limits, or the next file would be over them again.
  bool over = bytes > limits.bytes || files > limits.files;
  for (size_t i = 0; over && i < entries.size() && (bytes > limits.bytes * 9 / 10 || files > limits.files * 9 / 10); ++i) {
    ::unlinkat(::dirfd(opened), entries[i].name.c_str(), 0);
    bytes -= entries[i].bytes;
    --files;
  }
  ::closedir(opened);
}

void prune_cache_hourly(const std::string& directory, const CacheLimits& limits) {
  std::string stamp = directory + "/" + kStamp;
  struct stat info;
  if (::lstat(stamp.c_str(), &info) == 0 && std::time(nullptr) - info.st_mtime < kInterval) {
    return;
  }
  ::unlink(stamp.c_str());
  ::close(::open(stamp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  prune_cache(directory, limits);
}

} // namespace torch_xla
