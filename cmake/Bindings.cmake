# The function xla_bindings: the module _XLAC for one Python. TORCH_XLA_PYTHON_HEADERS names the include folders of further Pythons that get one:
# it takes no more of them, as a module finds Python's symbols in the process that imports it.
set(TORCH_XLA_PYTHON_HEADERS "" CACHE STRING "Include folders of other Pythons (each with Python.h) that _XLAC is built for, too")

# Target NAME, out of SOURCES: _XLAC.SOABI.so for the Python with the header folders INCLUDES.
function(xla_bindings name)
  cmake_parse_arguments(arg "" SOABI "INCLUDES;SOURCES" ${ARGN})
  add_library(${name} MODULE ${arg_SOURCES})
  set_target_properties(
    ${name}
    PROPERTIES OUTPUT_NAME _XLAC
               PREFIX ""
               SUFFIX .${arg_SOABI}.so
               CXX_VISIBILITY_PRESET hidden
               BUILD_RPATH "$ORIGIN;${TORCH_LIB_DIR}"
               INSTALL_RPATH "$ORIGIN;$ORIGIN/../../../torch/lib")
  target_include_directories(${name} SYSTEM PRIVATE ${arg_INCLUDES})
  target_link_libraries(${name} PRIVATE xla_options torch_xla torch::python)
  target_precompile_headers(${name} PRIVATE <torch/csrc/autograd/python_variable.h> <torch/csrc/utils/pybind.h> <pybind11/stl.h>)
endfunction()

# Sets OUT_SOABI and OUT_INCLUDES for the Python of the include folder HEADERS, which is of this interpreter's kind.
function(xla_python_of out headers)
  file(STRINGS ${headers}/patchlevel.h lines REGEX "#define +PY_(MAJOR|MINOR)_VERSION")
  string(REGEX REPLACE "[^0-9]+" "" number "${lines}")
  string(REGEX REPLACE "^cpython-[0-9]+" "cpython-${number}" soabi ${Python_SOABI})
  # Debian's pyconfig.h includes <x86_64-linux-gnu/python3.13/pyconfig.h>: a folder that has this file, and no header of another system.
  get_filename_component(folder ${headers} NAME)
  set(own_config ${CMAKE_LIBRARY_ARCHITECTURE}/${folder})
  set(configs ${PROJECT_BINARY_DIR}/python_configs)
  if(EXISTS ${headers}/../${own_config})
    file(MAKE_DIRECTORY ${configs}/${CMAKE_LIBRARY_ARCHITECTURE})
    file(CREATE_LINK ${headers}/../${own_config} ${configs}/${own_config} SYMBOLIC)
  endif()
  set(${out}_SOABI ${soabi} PARENT_SCOPE)
  set(${out}_INCLUDES ${headers} ${configs} PARENT_SCOPE)
endfunction()
