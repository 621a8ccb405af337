# Finds LLVM 19's static libraries through llvm-config and defines the imported target llvm::jit. Linking uses lld when it is there.
find_program(LLVM_CONFIG NAMES llvm-config-19 REQUIRED)

function(llvm_config out)
  execute_process(COMMAND ${LLVM_CONFIG} --link-static ${ARGN} OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

llvm_config(llvm_include_dir --includedir)
llvm_config(llvm_bin_dir --bindir)
llvm_config(llvm_version --version)
llvm_config(llvm_libs --libfiles runtimedyld native passes)
separate_arguments(llvm_libs)

add_library(llvm::jit INTERFACE IMPORTED)
target_include_directories(llvm::jit INTERFACE ${llvm_include_dir})
target_compile_definitions(llvm::jit INTERFACE _GNU_SOURCE __STDC_CONSTANT_MACROS __STDC_FORMAT_MACROS __STDC_LIMIT_MACROS)
target_compile_options(llvm::jit INTERFACE -fno-rtti)
# Of what llvm-config --system-libs names, z3 and xml2 serve parts that are not linked. The others are linked statically where the system
# has them so: not every system where the library is installed has them at all.
find_library(zstd NAMES libzstd.a zstd REQUIRED)
find_library(zlib NAMES libz.a z REQUIRED)
add_library(llvm::libs INTERFACE IMPORTED)
target_link_libraries(llvm::libs INTERFACE ${llvm_libs} rt dl m ${zlib} ${zstd})

if(EXISTS ${llvm_bin_dir}/ld.lld)
  add_link_options(-B${llvm_bin_dir} -fuse-ld=lld)
endif()
