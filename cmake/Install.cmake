# Installs the library so that find_package(Tensorpack) gives tensorpack::tensorpack.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tensorpack)
install(TARGETS tensorpack EXPORT TensorpackTargets)
install(EXPORT TensorpackTargets NAMESPACE tensorpack:: DESTINATION ${package_dir})
install(CODE "set(include_dir \"${CMAKE_INSTALL_INCLUDEDIR}\")\nset(source_dir \"${CMAKE_CURRENT_SOURCE_DIR}\")")
install(SCRIPT cmake/InstallHeaders.cmake)

# The build tree is a package, too: -DTensorpack_DIR=<build>.
export(EXPORT TensorpackTargets NAMESPACE tensorpack:: FILE ${CMAKE_CURRENT_BINARY_DIR}/TensorpackTargets.cmake)
set(modules cmake/TensorpackDependencies.cmake cmake/TensorpackPrecompile.cmake)
file(COPY ${modules} DESTINATION ${CMAKE_CURRENT_BINARY_DIR})

configure_package_config_file(cmake/TensorpackConfig.cmake.in TensorpackConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(TensorpackConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
    ${CMAKE_CURRENT_BINARY_DIR}/TensorpackConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/TensorpackConfigVersion.cmake
    ${modules}
  DESTINATION ${package_dir})
