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
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,--as-needed -s)
