# What C++ programs take of the package: the public header and the files of find_package(torch_xla), which name all else by its place beside
# them. They are installed into the Python package, and in a build in place written into the source tree's.
include(CMakePackageConfigHelpers)
set(config_dir ${PROJECT_BINARY_DIR}/package)
configure_file(${PROJECT_SOURCE_DIR}/cmake/torch_xlaConfig.cmake.in ${config_dir}/torch_xlaConfig.cmake @ONLY)
write_basic_package_version_file(${config_dir}/torch_xlaConfigVersion.cmake COMPATIBILITY SameMajorVersion)

set(header torch_xla/torch_xla.h)
set(configs ${config_dir}/torch_xlaConfig.cmake ${config_dir}/torch_xlaConfigVersion.cmake)
install(FILES include/${header} DESTINATION torch_xla/include/torch_xla)
install(FILES ${configs} DESTINATION torch_xla/share/cmake/torch_xla)
if(TORCH_XLA_IN_PLACE)
  configure_file(include/${header} ${PROJECT_SOURCE_DIR}/torch_xla/include/${header} COPYONLY)
  file(COPY ${configs} DESTINATION ${PROJECT_SOURCE_DIR}/torch_xla/share/cmake/torch_xla)
endif()
