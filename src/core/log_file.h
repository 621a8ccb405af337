// A file to which a process appends its debug output; an environment variable names it.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

namespace torch_xla {

// Thread-safe.
class LogFile {
 public:
  // `variable` names it in errors. An empty path is standard error. Throws UserError (Value) where the file cannot be opened.
  LogFile(const char* variable, const std::string& path);
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Writes the whole text; texts of several threads do not mix. Never throws: a full disk gives one warning.
  void append(std::string_view text);

 private:
  const char* const variable_;
  const std::string path_;
  std::mutex mutex_; // held while a text is written; guards has_warned_
  int fd_; // open until the process ends
  bool has_warned_ = false;
};

} // namespace torch_xla
