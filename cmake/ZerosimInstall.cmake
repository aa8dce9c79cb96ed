# The CMake package: find_package(zerosim) gives the targets zerosim::base, zerosim::model and so on.

include(CMakePackageConfigHelpers)

set(zerosim_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/zerosim")
install(EXPORT zerosim-targets NAMESPACE zerosim:: DESTINATION "${zerosim_package_dir}")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/zerosim-config.cmake.in"
  "${PROJECT_BINARY_DIR}/zerosim-config.cmake"
  INSTALL_DESTINATION "${zerosim_package_dir}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/zerosim-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/zerosim-config.cmake"
  "${PROJECT_BINARY_DIR}/zerosim-config-version.cmake"
  DESTINATION "${zerosim_package_dir}")
