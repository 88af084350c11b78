find_package(GTest REQUIRED)
find_package(Python3 COMPONENTS Interpreter)

# All tests with a label, so that a preset can build what it runs and no more.
foreach(label fast threads cuda cluster reference fuzz)
  add_custom_target(${label}_tests)
endforeach()

# What sanitizers may overlook, each with its reason in the file.
set(sanitizer_environment
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
  "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/sanitizers/leak.supp:print_suppressions=0"
  "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/sanitizers/thread.supp:halt_on_error=1:second_deadlock_stack=1"
  "UBSAN_OPTIONS=print_stacktrace=1")

# cohort_test(NAME SOURCES a.cc ... [DEPS target ...] [LABEL fast] [TIMEOUT 120] [THREADS])
# One GoogleTest binary, one ctest entry. Labels: fast, cuda, cluster, reference. THREADS adds the
# label threads: the test is about threads that share memory, and runs under ThreadSanitizer too.
function(cohort_test name)
  cmake_parse_arguments(ARG "THREADS" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(COHORT_SANITIZE)  # which takes several times as long
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  set(labels ${ARG_LABEL})
  if(ARG_THREADS)
    list(APPEND labels threads)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE cohort_options ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "${sanitizer_environment}")
  # A comparison that did not happen must not look like one that did.
  if(ARG_LABEL STREQUAL reference)
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  endif()
  foreach(label ${labels})
    add_dependencies(${label}_tests ${name})
  endforeach()
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
