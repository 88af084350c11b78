find_package(GTest REQUIRED)
find_package(Python3 COMPONENTS Interpreter)

# cohort_test(NAME SOURCES a.cc ... [DEPS target ...] [LABEL fast] [TIMEOUT 120])
# One GoogleTest binary, one ctest entry. Labels: fast, cluster, reference, fuzz.
function(cohort_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE cohort_options ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# cohort_script_test(NAME COMMAND cmd ... [LABEL fast] [TIMEOUT 120]): an executable script that
# exits 0 on success. COHORT_BIN holds the folder of the built binaries.
function(cohort_script_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "COMMAND" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "COHORT_BIN=${CMAKE_BINARY_DIR}/bin;COHORT_BUILD=${CMAKE_BINARY_DIR}")
endfunction()
