# Installs the library so that find_package(Tensorpack) gives tensorpack::tensorpack.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tensorpack)
install(TARGETS tensorpack EXPORT TensorpackTargets)
install(EXPORT TensorpackTargets NAMESPACE tensorpack:: DESTINATION ${package_dir})
install(DIRECTORY tensorpack DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN pch.h EXCLUDE)

configure_package_config_file(cmake/TensorpackConfig.cmake.in TensorpackConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(TensorpackConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
    ${CMAKE_CURRENT_BINARY_DIR}/TensorpackConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/TensorpackConfigVersion.cmake
    cmake/TensorpackDependencies.cmake
  DESTINATION ${package_dir})
