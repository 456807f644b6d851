# One library per folder, in the one direction of dependency: server -> core -> kernels.
if(QUIRE_PORTABLE)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS ON)
endif()
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-cpp)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
find_library(NUMA_LIBRARY numa REQUIRED)
find_package(ZLIB REQUIRED)
include(cmake/modules.cmake)
set(QUIRE_SPDLOG spdlog::spdlog)
if(QUIRE_PORTABLE)
  include(cmake/portable.cmake)
endif()
# Boost before 1.83 has Boost.URL as sources, which server/client/http_url.cpp includes.
find_library(BOOST_URL_LIBRARY boost_url)
if(NOT BOOST_URL_LIBRARY)
  set(BOOST_URL_LIBRARY "")
endif()

function(quire_library name)
  cmake_parse_arguments(ARG "" "EXCLUDE" "FOLDERS;LINK" ${ARGN})
  set(sources)
  foreach(folder ${ARG_FOLDERS})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "/server/(dev/)?main\\.cpp$")
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX ${ARG_EXCLUDE})
  endif()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC quire_options ${ARG_LINK})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE quire_options ${ARG_LINK})
  endif()
endfunction()

# The files of another architecture's ISA levels.
if(QUIRE_ARM64)
  set(foreign "/kernels/cpu/levels/(isa_(avx|amx|scalar_amx)[a-z0-9_]*|levels_x86)\\.cpp$")
else()
  set(foreign "/kernels/cpu/levels/(isa_(neon|dotprod|i8mm)|levels_arm64)\\.cpp$")
endif()
quire_library(quire_kernels FOLDERS kernels EXCLUDE "/kernels/(gpu|emulated|cuda)/|${foreign}" LINK Threads::Threads ${NUMA_LIBRARY})
include(${PROJECT_SOURCE_DIR}/kernels/isa_flags.cmake)
# An archive member of its own, which a binary with a GPU leaves out.
set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/no_gpu.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
quire_library(quire_gpu FOLDERS kernels/gpu LINK quire_kernels)
# The GPU backend over the emulator: linked into test programs, never into quire.
quire_library(quire_emulated FOLDERS kernels/emulated LINK quire_gpu)
quire_library(quire_base FOLDERS core/base LINK quire_kernels ${QUIRE_SPDLOG})
quire_library(quire_grammar FOLDERS core/grammar LINK quire_base PkgConfig::UTF8PROC)
quire_library(quire_text FOLDERS core/text LINK quire_base PkgConfig::PCRE2 PkgConfig::UTF8PROC)
quire_library(quire_model FOLDERS core/model LINK quire_text PkgConfig::XXHASH)
quire_library(quire_engine FOLDERS core/content core/request core/kv core/sched core/sampling core/executor core/draft core/engine
  LINK quire_model quire_grammar)
# An archive member of its own, which a binary with another executor leaves out.
set_source_files_properties(${PROJECT_SOURCE_DIR}/core/executor/executor_for.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
quire_library(quire_sim FOLDERS core/sim EXCLUDE ${quire_sim_left_out} LINK quire_engine ZLIB::ZLIB)
quire_library(quire_server FOLDERS server EXCLUDE ${quire_left_out} LINK quire_engine quire_sim OpenSSL::SSL ZLIB::ZLIB ${quire_module_libraries}
  ${BOOST_URL_LIBRARY} PkgConfig::XXHASH)

# Two thirds of a build, with little arithmetic: how they are optimized decides how long `make test` and sanitizers' builds take.
set(QUIRE_CORE_OPTIMIZE "" CACHE STRING "Optimization of core/ and config/, where it is not the build's")
set(QUIRE_SERVER_OPTIMIZE "" CACHE STRING "Optimization of the server's code, where it is not the build's")
target_compile_options(quire_server PRIVATE ${QUIRE_SERVER_OPTIMIZE})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
  target_compile_options(quire_server PRIVATE -Wno-mismatched-new-delete)
endif()

# They compile Boost.URL, Asio and Beast, whose bodies no other file repeats.
set_source_files_properties(${PROJECT_SOURCE_DIR}/server/client/http_url.cpp ${PROJECT_SOURCE_DIR}/server/client/boost_bodies.cpp
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_compile_definitions(quire_server PUBLIC BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION)

if(page IN_LIST quire_built)
  include(${PROJECT_SOURCE_DIR}/cmake/web.cmake)
endif()

quire_library(quire_config FOLDERS config LINK quire_server PkgConfig::YAML)
foreach(name base grammar text model engine sim config)
  target_compile_options(quire_${name} PRIVATE ${QUIRE_CORE_OPTIMIZE})
endforeach()

# The commands of quire-dev, which is not installed.
quire_library(quire_dev_commands FOLDERS server/dev LINK quire_server)
add_executable(quire_dev server/dev/main.cpp)
set_target_properties(quire_dev PROPERTIES OUTPUT_NAME quire-dev)
foreach(target quire_dev_commands quire_dev)
  target_compile_options(${target} PRIVATE ${QUIRE_SERVER_OPTIMIZE})
endforeach()
target_link_libraries(quire_dev PRIVATE quire_dev_commands quire_config $<$<BOOL:${QUIRE_PORTABLE}>:quire_portable>)

# Compiled once for the daemon and for the tests' daemons on other devices.
add_library(quire_main OBJECT server/main.cpp)
target_link_libraries(quire_main PUBLIC quire_config quire_server)
target_compile_options(quire_main PRIVATE ${QUIRE_SERVER_OPTIMIZE})
add_executable(quire)
target_link_libraries(quire PRIVATE quire_main $<$<BOOL:${QUIRE_PORTABLE}>:quire_portable>)
add_dependencies(quire quire_dev)  # beside it in every build: quire runs it for its commands
