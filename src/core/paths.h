// Paths that variables and programs name.
#pragma once

#include <string>

namespace torch_xla {

// The path without `~` and `~user` at its beginning, and as seen from the directory in which the process has loaded this library: a later
// chdir() does not move it. A user that does not exist and an empty path stay as they are.
std::string full_path(const std::string& path);

} // namespace torch_xla
