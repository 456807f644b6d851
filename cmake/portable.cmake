# QUIRE_PORTABLE: one binary that needs glibc 2.34 or later and nothing else. libraries.cmake finds static libraries only; here is
# what those need beside, and what Debian has as headers or not at all.
# Debian has no static libraries of spdlog and fmt: the headers of the first, with the bodies of the second in one file.
add_library(quire_spdlog INTERFACE)
target_compile_definitions(quire_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(quire_spdlog INTERFACE Threads::Threads)
set(QUIRE_SPDLOG quire_spdlog)
# Objects, which are linked before the compiler's own libraries refer to them.
add_library(quire_portable OBJECT deploy/portable/format.cpp deploy/portable/zmq_absent.c deploy/portable/newer_glibc.c)
set_target_properties(quire_portable PROPERTIES UNITY_BUILD OFF)
# Static libraries that those of the modules refer to.
function(quire_needs package)
  if(TARGET PkgConfig::${package})
    foreach(library ${ARGN})
      find_library(${library}_LIBRARY ${library} REQUIRED)
      target_link_libraries(PkgConfig::${package} INTERFACE ${${library}_LIBRARY})
    endforeach()
  endif()
endfunction()
quire_needs(ZMQ sodium)
quire_needs(EDIT tinfo bsd md)
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffunction-sections> $<$<COMPILE_LANGUAGE:C,CXX>:-fdata-sections>)
add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,--as-needed -s)

# The facts of the archive, which deploy/portable/archive.sh and the release read: its name, the root of its target's packages where that is
# not this machine, and of the CUDA runtime inside its version and its licence.
function(quire_describe_archive)
  cmake_parse_arguments(ARG "" "SUFFIX;CUDA;CUDA_LICENSE" "" ${ARGN})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/archive.env CONTENT
    "name='quire-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}${ARG_SUFFIX}'
sysroot='${CMAKE_SYSROOT}'
cuda='${ARG_CUDA}'
cuda_license='${ARG_CUDA_LICENSE}'
")
endfunction()
quire_describe_archive()
