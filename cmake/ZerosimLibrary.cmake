# Settings that every target shares, and zerosim_library(): one static library a folder.

include(CTest)
include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

option(ZEROSIM_WERROR "Treat warnings as errors (presets set it)" OFF)

# zerosim_library(NAME [SOURCES f...] [HEADERS f...] [PUBLIC target...] [PRIVATE target...])
# makes the target zerosim_NAME with alias zerosim::NAME, installed and exported with its headers.
function(zerosim_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;PUBLIC;PRIVATE" ${ARGN})
  set(target zerosim_${name})
  add_library(${target} STATIC)
  add_library(zerosim::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_sources(${target}
    PRIVATE ${ARG_SOURCES}
    PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${ARG_HEADERS})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  zerosim_warnings(${target})
  install(TARGETS ${target} EXPORT zerosim-targets
          FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/zerosim")
endfunction()

# g++ 12 reports overlaps in std::string's own operator+ where it optimises (GCC bug 105651): -Wrestrict
# is off there.
function(zerosim_warnings target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
    $<$<BOOL:${ZEROSIM_WERROR}>:-Werror>)
endfunction()
