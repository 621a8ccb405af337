# Script: writes the header OUTPUT with the git revision of the sources in FOLDER, if it is another one; empty for an unpacked archive.
set(revision)
if(EXISTS ${FOLDER}/.git)
  execute_process(COMMAND git rev-parse HEAD WORKING_DIRECTORY ${FOLDER} OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(
  WRITE ${OUTPUT}.new
  "// The git revision that was built; written by cmake/WriteRevision.cmake.
#pragma once

namespace torch_xla {

constexpr char kRevision[] = \"${revision}\";

} // namespace torch_xla
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
