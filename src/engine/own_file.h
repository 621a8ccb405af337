// Files that this user alone may write: code from others would run as this user.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <ctime>
#include <string>

namespace torch_xla {

// Whether it belongs to this user and nobody else may write to it.
bool is_own(const struct stat& info);

// A regular file of this user, open for reading; of size 0 for any other path. Never blocks, as a FIFO would.
class OwnFile {
 public:
  explicit OwnFile(const std::string& path);
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  uint64_t size() const {
    return size_;
  }
  // The next `size` bytes; false if there are fewer.
  bool read(char* bytes, size_t size);
  // Marks it as used, at most once an hour.
  void touch();

 private:
  int fd_;
  uint64_t size_ = 0;
  time_t used_ = 0;
};

// All or nothing, with mode 600, in place of a file that is there: written under another name and renamed. False if it fails.
bool write_own_file(const std::string& path, const std::string& bytes);

} // namespace torch_xla
