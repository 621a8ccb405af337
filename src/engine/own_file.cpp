// Opens, reads and writes such files.
#include "engine/own_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>

#include "core/errors.h"

namespace torch_xla {
namespace {

constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;
constexpr time_t kTouchAfter = 3600; // seconds

bool write_all(int fd, const std::string& bytes) {
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

} // namespace

bool is_own(const struct stat& info) {
  return info.st_uid == ::geteuid() && !(info.st_mode & kOthersMayWrite);
}

OwnFile::OwnFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)) {
  struct stat info;
  if (fd_ >= 0 && ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode) && is_own(info)) {
    size_ = static_cast<uint64_t>(info.st_size);
    used_ = info.st_mtime;
  }
}

OwnFile::~OwnFile() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

bool OwnFile::read(char* bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t n = ::read(fd_, bytes + done, size - done);
    if (n <= 0) {
      return false;
    }
    done += static_cast<size_t>(n);
  }
  return true;
}

void OwnFile::touch() {
  if (std::time(nullptr) - used_ > kTouchAfter) {
    ::futimens(fd_, nullptr);
  }
}

bool write_own_file(const std::string& path, const std::string& bytes) {
  static std::atomic<uint64_t> counter{0};
  std::string temporary = str(path, ".", ::getpid(), ".", counter++);
  int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return false;
  }
  bool ok = write_all(fd, bytes);
  ok = ::close(fd) == 0 && ok;
  if (!ok || ::rename(temporary.c_str(), path.c_str()) != 0) {
    ::unlink(temporary.c_str());
    return false;
  }
  return true;
}

} // namespace torch_xla
