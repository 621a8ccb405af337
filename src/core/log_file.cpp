// Opens and appends.
#include "core/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/errors.h"

namespace torch_xla {

LogFile::LogFile(const char* variable, const std::string& path)
    : variable_(variable),
      path_(path),
      fd_(path.empty() ? STDERR_FILENO : ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  XLA_CHECK_KIND(Value, fd_ >= 0, "the file that ", variable, " names, ", path, ", cannot be written: ", std::strerror(errno));
}

void LogFile::append(std::string_view text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!text.empty()) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      if (!has_warned_ && !path_.empty()) {
        std::fprintf(
            stderr,
            "torch_xla: the file that %s names, %s, cannot be written any more: %s. The program goes on\n",
            variable_,
            path_.c_str(),
            std::strerror(errno));
      }
      has_warned_ = true;
      return;
    }
  }
}

} // namespace torch_xla
