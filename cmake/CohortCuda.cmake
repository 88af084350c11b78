# The CUDA backend, twice: with the real libraries, or with the emulation of tests/cuda_emulation
# in their place (docs/gpu.md). Host code is the same in both; kernels are compiled by nvcc or by
# the host compiler.
set(COHORT_CUDA "off" CACHE STRING "CUDA backend: off, real or emulation")
set_property(CACHE COHORT_CUDA PROPERTY STRINGS off real emulation)
set(COHORT_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "Of the GPU code, as CMake names them")

if(NOT COHORT_CUDA STREQUAL "off")
  find_package(CUDAToolkit 13 QUIET)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NOT CUDAToolkit_FOUND OR NOT NCCL_INCLUDE_DIR)
    message(STATUS "CUDA toolkit 13 or NCCL not found: building without the CUDA backend")
    set(COHORT_CUDA "off")
  endif()
endif()

# What code of the CUDA backend links: runtime, cuBLASLt and NCCL, or what takes their place.
if(COHORT_CUDA STREQUAL "real")
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE}")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${COHORT_CUDA_ARCHITECTURES}")
  # Else the static runtime is linked beside the shared one.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc does.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
  add_library(cohort_cuda_api INTERFACE)
  target_include_directories(cohort_cuda_api SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
  target_link_libraries(cohort_cuda_api INTERFACE CUDA::cudart CUDA::cublasLt ${NCCL_LIBRARY})
elseif(COHORT_CUDA STREQUAL "emulation")
  add_library(cohort_cuda_api INTERFACE)
  target_include_directories(cohort_cuda_api SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS}
                                                              ${NCCL_INCLUDE_DIR})
  target_link_libraries(cohort_cuda_api INTERFACE cohort_cuda_emulation)
endif()

# cohort_cuda_library(NAME SOURCES a.cu b.cc ... [DEPS target ...])
function(cohort_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC cohort_options cohort_cuda_api ${ARG_DEPS})
  set(kernels ${ARG_SOURCES})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  if(COHORT_CUDA STREQUAL "emulation" AND kernels)
    # Vector loads read memory as another type: a GPU has no strict aliasing.
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
      "-x;c++;-fno-strict-aliasing;-Wno-unknown-pragmas")
  endif()
endfunction()
