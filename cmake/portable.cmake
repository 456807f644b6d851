# QUIRE_PORTABLE: one binary that needs glibc 2.34 or later and nothing else. libraries.cmake finds static libraries only; here is
# what those need beside, and what Debian has as headers or not at all.
set(QUIRE_SPDLOG spdlog::spdlog_header_only)  # Debian has no static library of it
foreach(library sodium tinfo bsd md)
  string(TOUPPER ${library} name)
  find_library(${name}_LIBRARY ${library} REQUIRED)
endforeach()
add_library(quire_portable STATIC deploy/portable/zmq_absent.c deploy/portable/dl_find_object.c)
set_target_properties(quire_portable PROPERTIES UNITY_BUILD OFF)
target_link_libraries(PkgConfig::ZMQ INTERFACE quire_portable ${SODIUM_LIBRARY})
target_link_libraries(PkgConfig::EDIT INTERFACE ${TINFO_LIBRARY} ${BSD_LIBRARY} ${MD_LIBRARY})
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,--as-needed -s)
