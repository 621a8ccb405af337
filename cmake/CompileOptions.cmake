# The interface target xla_options: flags of every file of ours. The presets turn warnings into errors, a user's own build does not.
add_library(xla_options INTERFACE)
target_compile_options(
  xla_options
  INTERFACE -Wall
            -Wextra
            -ffunction-sections
            -fdata-sections
            -fno-semantic-interposition
            -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms of g++ 12 in inlined library code: the first is silent, as it fills pages; the others stay warnings.
  target_compile_options(
    xla_options INTERFACE -Wno-maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow -Wno-error=restrict
                          -Wno-error=free-nonheap-object)
endif()
target_include_directories(xla_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_options(xla_options INTERFACE -Wl,--gc-sections -Wl,--as-needed)
if(TORCH_XLA_SANITIZER)
  target_compile_options(xla_options INTERFACE -O1 -fsanitize=${TORCH_XLA_SANITIZER} -fno-omit-frame-pointer)
  target_link_options(xla_options INTERFACE -fsanitize=${TORCH_XLA_SANITIZER})
endif()
if(TORCH_XLA_SANITIZER STREQUAL "undefined")
  # vptr needs the type information that LLVM is built without.
  target_compile_options(xla_options INTERFACE -fno-sanitize=vptr)
endif()
