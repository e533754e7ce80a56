# Runs COMMAND (a list) and checks its exit code (CODE, or "any") and how many times TEXT (a regular
# expression) occurs in what it prints (LINES, or "some").
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE code OUTPUT_VARIABLE output
                ERROR_VARIABLE errors TIMEOUT 60)
# A list of matches is cut at semicolons, but not within an opened bracket.
string(REPLACE ";" "," output "${output}${errors}")
string(REPLACE "[" "(" output "${output}")
string(REGEX MATCHALL "${TEXT}" found "${output}")
list(LENGTH found lines)
if(LINES STREQUAL "some" AND lines GREATER 0)
  set(LINES ${lines})
endif()
if(CODE STREQUAL "any")
  set(CODE ${code})
endif()
if(NOT code STREQUAL "${CODE}" OR NOT lines EQUAL "${LINES}")
  message(FATAL_ERROR "exit code ${code}, expected ${CODE}; ${lines} lines match \"${TEXT}\", "
                      "expected ${LINES}\n${output}")
endif()
