// Home directories, and the directory in which the process began.
#include "core/paths.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "core/env.h"

namespace torch_xla {
namespace {

namespace fs = std::filesystem;

const fs::path& first_directory() {
  static const auto* directory = [] {
    std::error_code error; // it may have been deleted: then the path is empty
    return new fs::path(fs::current_path(error));
  }();
  return *directory;
}
[[maybe_unused]] const fs::path& kFirstDirectory = first_directory(); // when the library is loaded

// The home of the named user, or of this user for an empty name; empty if unknown.
std::string find_home(const std::string& user) {
  if (user.empty() && env::is_set(env::variable("HOME"))) {
    return *env::find(env::variable("HOME"));
  }
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> texts(1 << 14);
  user.empty() ? ::getpwuid_r(::getuid(), &entry, texts.data(), texts.size(), &found)
               : ::getpwnam_r(user.c_str(), &entry, texts.data(), texts.size(), &found);
  return found ? found->pw_dir : "";
}

} // namespace

std::string full_path(const std::string& path) {
  if (path.empty()) {
    return path;
  }
  std::string whole = path;
  if (path[0] == '~') {
    const size_t end = std::min(path.find('/'), path.size());
    if (std::string home = find_home(path.substr(1, end - 1)); !home.empty()) {
      whole = home + path.substr(end);
    }
  }
  return first_directory() / whole;
}

} // namespace torch_xla
