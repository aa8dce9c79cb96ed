include(CMakePackageConfigHelpers)
install(EXPORT zerosim-targets NAMESPACE zerosim:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/zerosim")
