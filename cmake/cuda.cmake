# The CUDA backend (QUIRE_CUDA): kernels compiled by nvcc, everything else by the C++ compiler, and the toolkit's static
# runtime, so that the binary starts on machines without a driver too.
set(QUIRE_CUDA_ARCHITECTURES "80-real;86-real;89-real;90a-real;100-real;120-real;80-virtual" CACHE STRING
  "GPUs that kernels are compiled for; a virtual one serves all newer ones, compiled by the driver when first used")
set(CMAKE_CUDA_ARCHITECTURES ${QUIRE_CUDA_ARCHITECTURES})
if(NOT CMAKE_CUDA_COMPILER)
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS /usr/local/cuda/bin REQUIRED)
endif()
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
enable_language(CUDA)
# CMake 3.25 does not know nvcc 13's flag.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
if(QUIRE_PORTABLE)
  list(PREPEND CMAKE_FIND_LIBRARY_SUFFIXES .so)  # the package is looked for by its shared runtime, the static one is linked
endif()
find_package(CUDAToolkit 13 REQUIRED)

file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
add_library(quire_cuda_kernels STATIC ${cuda_kernels})
set_target_properties(quire_cuda_kernels PROPERTIES UNITY_BUILD OFF CUDA_STANDARD 20)
target_include_directories(quire_cuda_kernels PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_options(quire_cuda_kernels PRIVATE --expt-relaxed-constexpr -fmad=false -Xfatbin=-compress-all)

add_library(quire_cuda STATIC ${PROJECT_SOURCE_DIR}/kernels/cuda/cuda_device.cpp)
target_include_directories(quire_cuda SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(quire_cuda PUBLIC quire_gpu quire_cuda_kernels CUDA::cudart_static)

# Instead of kernels/no_gpu.cpp, which is left out of the binary then.
function(quire_use_cuda target)
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/kernels/cuda/open_gpu.cpp)
  target_link_libraries(${target} PRIVATE quire_cuda)
endfunction()
quire_use_cuda(quire)

# Compares the GPU with the emulator, and measures it: tests/gpu/run.sh.
file(GLOB gpu_check CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/gpu_check/*.cpp)
list(FILTER gpu_check EXCLUDE REGEX "emulated_target")
add_executable(gpu_check EXCLUDE_FROM_ALL ${gpu_check} ${PROJECT_SOURCE_DIR}/tests/kernels/random_data.cpp)
target_link_libraries(gpu_check PRIVATE quire_cuda quire_emulated)

if(QUIRE_PORTABLE)
  # NVIDIA's terms, where its Debian packages, its installer and its Python packages have them.
  file(GLOB terms /usr/share/doc/cuda-cudart-dev-13-*/copyright ${CUDAToolkit_TARGET_DIR}/EULA.txt
    ${CUDAToolkit_TARGET_DIR}/dist-info/nvidia_cuda_runtime-*/licenses/License.txt)
  if(NOT terms)
    message(FATAL_ERROR "the licence of the CUDA runtime, which the archive must have, is not beside ${CUDAToolkit_TARGET_DIR}")
  endif()
  list(GET terms 0 terms)
  quire_describe_archive(SUFFIX -cuda CUDA ${CUDAToolkit_VERSION} CUDA_LICENSE ${terms})
endif()
