# Finds LLVM 19's static libraries through llvm-config and defines the imported targets llvm::jit and llvm::libs. Linking uses lld when it is there.
function(llvm_is_missing problem)
  unset(LLVM_CONFIG CACHE) # the next run looks again
  message(
    FATAL_ERROR
      "torch_xla is built with LLVM 19 and its static libraries, but ${problem}.\n"
      "On Debian: apt-get install g++ llvm-19-dev libzstd-dev zlib1g-dev\n"
      "Elsewhere install LLVM 19 and set the variable LLVM_CONFIG to its llvm-config: LLVM_CONFIG=/usr/lib/llvm-19/bin/llvm-config pip install ...\n"
      "A wheel of torch_xla that was built elsewhere needs no LLVM.")
endfunction()

if(NOT LLVM_CONFIG AND NOT "$ENV{LLVM_CONFIG}" STREQUAL "")
  set(LLVM_CONFIG $ENV{LLVM_CONFIG} CACHE FILEPATH "llvm-config of LLVM 19")
endif()
find_program(LLVM_CONFIG NAMES llvm-config-19 llvm-config-19-64 llvm-config PATHS /usr/lib/llvm-19/bin)
if(NOT LLVM_CONFIG)
  llvm_is_missing("there is no llvm-config-19")
endif()

function(llvm_config out)
  execute_process(
    COMMAND ${LLVM_CONFIG} --link-static ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE problem OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    llvm_is_missing("`${LLVM_CONFIG} --link-static ${ARGN}` fails: ${status} ${problem}")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

llvm_config(llvm_version --version)
if(NOT llvm_version MATCHES "^19\\.")
  llvm_is_missing("${LLVM_CONFIG} is of LLVM ${llvm_version}")
endif()
llvm_config(llvm_include_dir --includedir)
llvm_config(llvm_bin_dir --bindir)
llvm_config(llvm_libs --libfiles runtimedyld native passes)
separate_arguments(llvm_libs)

add_library(llvm::jit INTERFACE IMPORTED)
target_include_directories(llvm::jit INTERFACE ${llvm_include_dir})
target_compile_definitions(llvm::jit INTERFACE _GNU_SOURCE __STDC_CONSTANT_MACROS __STDC_FORMAT_MACROS __STDC_LIMIT_MACROS)
target_compile_options(llvm::jit INTERFACE -fno-rtti)
# Of what llvm-config --system-libs names, z3 and xml2 serve parts that are not linked. The others are linked statically where the system
# has them so: not every system where the library is installed has them at all.
find_library(zstd NAMES libzstd.a zstd)
find_library(zlib NAMES libz.a z)
if(NOT zstd OR NOT zlib)
  llvm_is_missing("the libraries zstd and zlib that it needs are not both there")
endif()
add_library(llvm::libs INTERFACE IMPORTED)
target_link_libraries(llvm::libs INTERFACE ${llvm_libs} rt dl m ${zlib} ${zstd})

if(EXISTS ${llvm_bin_dir}/ld.lld)
  add_link_options(-B${llvm_bin_dir} -fuse-ld=lld)
endif()
