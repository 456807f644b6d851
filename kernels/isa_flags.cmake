# Compiler flags of each ISA level's files, kernels/cpu/levels/isa_<level>*.cpp.
# Everything else is built for baseline x86-64 or armv8-a, so that one binary runs anywhere.
# -Wno-uninitialized: GCC 12 warns inside its own AVX-512 intrinsics.
set(QUIRE_ISA_OPTIMIZE -O3)
if(QUIRE_SANITIZE)
  set(QUIRE_ISA_OPTIMIZE -O1)  # -O3 with a sanitizer takes minutes for each file
endif()
# Their threads share nothing but what the thread pool, which is instrumented, hands out.
if(QUIRE_SANITIZE STREQUAL "thread")
  set(QUIRE_ISA_OPTIMIZE -O1 -fno-sanitize=all)
endif()

# No fuzz target reaches them, and clang 16 breaks down when it optimizes those of avx512bf16.
if(QUIRE_LIBFUZZER)
  set(QUIRE_ISA_OPTIMIZE -O0 -fno-sanitize=all)
endif()

function(quire_isa level)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cpu/levels/isa_${level}*.cpp)
  foreach(source ${sources})
    set(optimize ${QUIRE_ISA_OPTIMIZE})
    if(source MATCHES "/isa_(scalar|avx512)_amx\\.cpp$")  # only tests use them
      list(TRANSFORM optimize REPLACE "-O3" "-O2")
    elseif(level STREQUAL "scalar")  # -O3 takes three times as long
      list(TRANSFORM optimize REPLACE "-O3" "-O2")
    endif()
    # One level stands for all, which are made of the same templates: instrumented they take most of the build's time.
    if(QUIRE_SANITIZE STREQUAL "address" AND NOT source MATCHES "/isa_avx2\\.cpp$")
      list(APPEND optimize -fno-sanitize=all)
    endif()
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ARGN};${optimize};-fno-exceptions;-Wno-uninitialized")
  endforeach()
endfunction()

quire_isa(scalar)
if(QUIRE_ARM64)
  quire_isa(neon -march=armv8-a)
  quire_isa(dotprod -march=armv8.2-a+dotprod)
  quire_isa(i8mm -march=armv8.2-a+dotprod+i8mm)
  return()
endif()
quire_isa(avx2 -mavx2 -mfma -mf16c)
quire_isa(avxvnni -mavxvnni -mavx2 -mfma -mf16c)
quire_isa(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma -mf16c)
quire_isa(avx512bf16 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 -mavx2 -mfma -mf16c)
quire_isa(amx -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 -mavx512vbmi -mavx2 -mfma -mf16c -mamx-tile -mamx-int8 -mamx-bf16)
