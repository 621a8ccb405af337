# Script: writes the header OUTPUT with the constant NAME, one hash over the files SOURCES and the version of LLVM; WHAT says of what.
set(hashes "${LLVM}\n")
foreach(source IN LISTS SOURCES)
  file(SHA256 ${source} hash)
  get_filename_component(name ${source} NAME)
  string(APPEND hashes "${name} ${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 32 hash)
file(
  WRITE ${OUTPUT}
  "// A hash of the sources that files on disk depend on; written by cmake/WriteSourcesHash.cmake.
#pragma once

namespace torch_xla {

constexpr char ${NAME}[] = \"${hash}\"; // of all that decides ${WHAT}

} // namespace torch_xla
")
