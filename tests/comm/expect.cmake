# Runs COMMAND (a list) and checks its exit code (CODE, or "any") and, for each of TEXT (a list of
# regular expressions, their brackets balanced), how many times it occurs in what the command prints: the
# number at the same place of LINES, or "some".
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE code OUTPUT_VARIABLE output
                ERROR_VARIABLE errors TIMEOUT 60)
# A list of matches is cut at semicolons, but not within an opened bracket.
string(REPLACE ";" "," output "${output}${errors}")
string(REPLACE "[" "(" output "${output}")
set(wrong "")
if(NOT CODE STREQUAL "any" AND NOT code STREQUAL "${CODE}")
  set(wrong "exit code ${code}, expected ${CODE}\n")
endif()
foreach(text expected IN ZIP_LISTS TEXT LINES)
  string(REGEX MATCHALL "${text}" found "${output}")
  list(LENGTH found lines)
  if(NOT lines EQUAL "${expected}" AND NOT (expected STREQUAL "some" AND lines GREATER 0))
    string(APPEND wrong "${lines} lines match \"${text}\", expected ${expected}\n")
  endif()
endforeach()
list(LENGTH TEXT texts)
list(LENGTH LINES numbers)
if(texts EQUAL 0 OR NOT texts EQUAL numbers)
  set(wrong "${texts} texts and ${numbers} numbers of lines are to be compared\n")
endif()
if(wrong)
  message(FATAL_ERROR "${wrong}${output}")
endif()
