# Settings and the few functions that every folder's CMakeLists.txt uses.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

set(COHORT_SANITIZE "" CACHE STRING "Sanitizers for all targets, as in -fsanitize=...")
option(COHORT_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(COHORT_WITHOUT_GRPC "Leave out what speaks gRPC, even where it is installed" OFF)
option(COHORT_WITHOUT_MPI "Ranks can only be threads of one process, even where MPI is installed" OFF)
option(COHORT_WARNINGS_AS_ERRORS "Treat warnings as errors" ON)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE}")
endif()

# Debug information for backtraces only: full -g doubles the link time. Sanitizers check what the
# source says, not what an optimiser makes of it: more than -O1 would only cost compile time.
if(COHORT_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
else()
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
endif()

add_library(cohort_options INTERFACE)
target_include_directories(cohort_options INTERFACE "${CMAKE_SOURCE_DIR}")
# Contraction would let the compiler turn a*b+c into one rounding where the source says two:
# fused multiply-adds are written where they are meant (docs/arithmetic.md).
target_compile_options(cohort_options INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-ffp-contract=off>)
if(COHORT_WARNINGS_AS_ERRORS)
  target_compile_options(cohort_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
if(COHORT_SANITIZE)
  target_compile_options(cohort_options INTERFACE -fsanitize=${COHORT_SANITIZE}
                                                  -fno-omit-frame-pointer)
  target_link_options(cohort_options INTERFACE -fsanitize=${COHORT_SANITIZE})
  if(COHORT_SANITIZE MATCHES "undefined")
    target_compile_options(cohort_options INTERFACE -fno-sanitize-recover=undefined)
    # AddressSanitizer sees null pointers, and libFuzzer's targets check everything that reads
    # foreign bytes: here these checks would only double the compile time.
    target_compile_options(cohort_options INTERFACE
      $<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=null,alignment,object-size,vptr>)
  endif()
  if(COHORT_SANITIZE MATCHES "thread")
    # GCC warns that TSan does not model fences; the code base uses none.
    target_compile_options(cohort_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()
if(COHORT_FUZZ)
  target_compile_options(cohort_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Imported targets found in one folder are for all of them.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Threads REQUIRED)
include(CohortCuda)

# cohort_library(NAME SOURCES a.cc ... [DEPS target ...])
function(cohort_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC cohort_options ${ARG_DEPS})
endfunction()

# cohort_binary(NAME SOURCES a.cc ... [DEPS target ...]): lands in build/<preset>/bin/
function(cohort_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE cohort_options ${ARG_DEPS})
endfunction()
