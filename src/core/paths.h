// Paths that variables and programs name.
#pragma once

#include <string>

namespace torch_xla {

// Replaces `~` or `~user` at the start, and resolves a relative path from the directory in which the process loaded this library: a later
// chdir() does not change it. An unknown user and an empty path stay as they are.
std::string full_path(const std::string& path);

} // namespace torch_xla
