# Script: writes the header OUTPUT with VERSION and one hash over the files SOURCES.
set(hashes)
foreach(source IN LISTS SOURCES)
  file(SHA256 ${source} hash)
  get_filename_component(name ${source} NAME)
  string(APPEND hashes "${name} ${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 32 hash)
file(
  WRITE ${OUTPUT}
  "// The versions that compiled code on disk depends on; written by cmake/WriteVersion.cmake.
#pragma once

namespace torch_xla {

constexpr char kVersion[] = \"${VERSION}\"; // of this package
constexpr char kCodegenSources[] = \"${hash}\"; // a hash of all that decides which code a kernel's text gives

} // namespace torch_xla
")
