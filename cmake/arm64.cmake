# Toolchain file: builds for arm64 on another machine, against a root of Debian packages for arm64 (deploy/arm64/sysroot.sh), and runs
# what was built under qemu. The preset arm64 uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
find_program(CMAKE_C_COMPILER NAMES aarch64-linux-gnu-gcc-12 aarch64-linux-gnu-gcc-13 aarch64-linux-gnu-gcc-14 REQUIRED)
find_program(CMAKE_CXX_COMPILER NAMES aarch64-linux-gnu-g++-12 aarch64-linux-gnu-g++-13 aarch64-linux-gnu-g++-14 REQUIRED)
set(QUIRE_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root" CACHE PATH "Root of Debian packages for arm64")
get_filename_component(CMAKE_SYSROOT "${QUIRE_SYSROOT}" REALPATH)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES QUIRE_SYSROOT)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH "${CMAKE_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")

# -cpu max: every instruction that a level may use.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu max -L "${CMAKE_SYSROOT}")
