# Finds torch beside the Python interpreter and defines the imported targets torch::cpu and torch::python.
# find_package(Torch) is not used: it looks for CUDA, MKL and protobuf and adds flags that are not wanted here.
execute_process(
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/find_torch.py
  OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT torch_dir)
  message(
    FATAL_ERROR
      "torch_xla is built against the torch that it shall serve, but ${Python_EXECUTABLE} has none.\n"
      "Install it first: pip install torch\n"
      "Where the build runs in an environment of its own (uv, python -m build), switch that off: --no-build-isolation, --no-isolation")
endif()

# torch has no stable C++ ABI: one build of this package serves one minor release, torch_version.
file(STRINGS ${torch_dir}/version.py torch_version_line REGEX "^__version__ = ")
string(REGEX MATCH "[0-9]+\\.[0-9]+" torch_version "${torch_version_line}")
foreach(end OLDEST NEWEST)
  file(STRINGS ${PROJECT_SOURCE_DIR}/torch_xla/_torch_release.py line REGEX "^${end} = ")
  string(REGEX REPLACE ".*\\(([0-9]+), ([0-9]+)\\).*" "\\1.\\2" torch_${end} "${line}")
endforeach()
if(torch_version VERSION_LESS torch_OLDEST)
  message(FATAL_ERROR "torch ${torch_version} is installed, but torch_xla ${PROJECT_VERSION} needs torch ${torch_OLDEST} or newer")
elseif(torch_version VERSION_GREATER torch_NEWEST)
  message(WARNING "torch ${torch_version} is newer than those that torch_xla ${PROJECT_VERSION} is tested with (${torch_OLDEST} to ${torch_NEWEST})")
endif()

set(TORCH_LIB_DIR ${torch_dir}/lib)

add_library(torch::cpu INTERFACE IMPORTED)
# IMPORTED include directories are system directories: no warnings from torch's headers.
target_include_directories(torch::cpu INTERFACE ${torch_dir}/include ${torch_dir}/include/torch/csrc/api/include)
target_compile_definitions(torch::cpu INTERFACE AT_PER_OPERATOR_HEADERS)
# OpenMP's functions come with libtorch_cpu.so, out of the runtime that a torch brings. No library of ours names its file, so a process never has
# two of them; programs, whose linkers want to see all symbols, link torch::openmp.
target_compile_options(torch::cpu INTERFACE -fopenmp)
target_link_libraries(torch::cpu INTERFACE ${TORCH_LIB_DIR}/libtorch_cpu.so ${TORCH_LIB_DIR}/libc10.so)
file(GLOB torch_gomp ${TORCH_LIB_DIR}/libgomp*.so*)
add_library(torch::openmp INTERFACE IMPORTED)
target_link_libraries(torch::openmp INTERFACE ${torch_gomp})

# pybind11 comes from torch's own headers, so that torch's type casters and ours are of one version.
add_library(torch::python INTERFACE IMPORTED)
target_link_libraries(torch::python INTERFACE torch::cpu ${TORCH_LIB_DIR}/libtorch_python.so)
message(STATUS "torch ${torch_version}: ${torch_dir}")
