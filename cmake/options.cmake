# Compiler settings shared by every target, and the compiler cache where there is one.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(quire_options INTERFACE)
target_include_directories(quire_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_options(quire_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  -fno-math-errno -ffp-contract=off -fdiagnostics-color=auto
  # No path of this machine in a binary; and a compiler cache serves every clone.
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
target_compile_definitions(quire_options INTERFACE QUIRE_VERSION="${PROJECT_VERSION}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives of these two inside the standard library and Asio's coroutines.
  target_compile_options(quire_options INTERFACE -Wno-maybe-uninitialized -Wno-restrict)
  # In a unity build every file but the batch itself counts as included.
  target_compile_options(quire_options INTERFACE -Wno-subobject-linkage)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    # It takes any function of a temporary that returns a reference for one that returns a part of it.
    target_compile_options(quire_options INTERFACE -Wno-dangling-reference)
  endif()
endif()

if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(QUIRE_ARM64 ON)
  target_compile_options(quire_options INTERFACE -fsigned-char)  # as on x86-64
endif()

if(QUIRE_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")  # builds in two thirds of the time, and the reports are clearer
endif()
if(QUIRE_SANITIZE STREQUAL "address")
  # Left out: what costs a third of the build's time and is found by AddressSanitizer, or is no fault on this processor.
  target_compile_options(quire_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
    -fno-sanitize=null,vptr,object-size,alignment -fno-omit-frame-pointer -g1)
  target_link_options(quire_options INTERFACE -fsanitize=address,undefined)
elseif(QUIRE_SANITIZE STREQUAL "thread")
  # Asio has fences beside its locks; ThreadSanitizer does not see them, which the compiler warns of.
  target_compile_options(quire_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer -g1 -Wno-tsan)
  target_link_options(quire_options INTERFACE -fsanitize=thread)
elseif(NOT QUIRE_SANITIZE STREQUAL "")
  message(FATAL_ERROR "QUIRE_SANITIZE must be empty, address or thread")
endif()
